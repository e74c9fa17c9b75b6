"""One validated object for every setting: from a TOML file, from the environment, or from both (the environment wins).

Every key `a.b` of the file is also the variable `TICKETS_BATCH__A__B`; lists and tables are JSON there.
"""

import difflib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from tickets_batch.errors import SettingsError

CONFIG_VARIABLE = "TICKETS_BATCH_CONFIG"
PREFIX = "TICKETS_BATCH__"
DEFAULT_FILE = Path("tickets-batch.toml")

CLOCK_TIME = r"^([01]\d|2[0-3]):[0-5]\d$"
TOKENS_PER_SLOT = 4000  # a slot's share of the token capacity where none is given: a long ticket and its answer

Engine = Literal["vllm", "sglang", "tensorrt-llm", "tgi", "llama.cpp", "openai"]
SignalType = Literal["ledger", "engine", "prometheus", "probe"]


class Section(BaseModel):
    """A table of the file: frozen, and it knows all its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Secret(Section):
    """A secret by reference: `{ env = "NAME" }` or `{ file = "/path" }`."""

    env: str | None = None
    file: Path | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ValueError('give exactly one of { env = "NAME" } and { file = "/path" }')
        return self

    def reveal(self) -> str:
        """The secret itself. Raises SettingsError when the variable or the file is missing."""
        if self.env is not None:
            value = os.environ.get(self.env)
            if not value:
                raise SettingsError(
                    f"the environment variable {self.env} is not set: export it, or change the reference"
                )
            return value
        assert self.file is not None  # noqa: S101 - the validator above says so
        try:
            return self.file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise SettingsError(f"cannot read the secret in {self.file}: {error.strerror}") from error


class Columns(Section):
    """Which column of the source holds what; a JSONL source may name a nested field with dots."""

    id: str = "id"
    subject: str = "subject"
    body: str = "body"
    created_at: str = "created_at"
    priority: str | None = None


class Source(Section):
    """Where the day's tickets come from: a file, or a SQL query with `:date`, `:starts_at`, `:ends_at`."""

    path: str | None = None
    url: str | Secret | None = None
    query: str | None = None
    columns: Columns = Columns()

    @model_validator(mode="after")
    def _file_or_query(self) -> Self:
        if self.path is not None and self.url is not None:
            raise ValueError("give either path, or url with query, not both")
        if (self.url is None) != (self.query is None):
            raise ValueError("url and query go together")
        return self


class Example(Section):
    """One solved ticket shown to the model."""

    text: Annotated[str, Field(min_length=1)]
    label: Annotated[str, Field(min_length=1)]


class Classification(Section):
    """What the model is asked: labels with descriptions, instructions, solved examples, an output cap in tokens."""

    labels: dict[str, str] = Field(min_length=2)
    instructions: str = "You sort support tickets."
    examples: tuple[Example, ...] = ()
    max_output_tokens: Annotated[int, Field(ge=4, le=4096)] = 32

    @model_validator(mode="after")
    def _labels_are_distinct(self) -> Self:
        folded = [label.strip().casefold() for label in self.labels]
        if "" in folded:
            raise ValueError("a label is empty")
        if len(set(folded)) != len(folded):
            raise ValueError("two labels differ only in case or white space")
        unknown = sorted({example.label for example in self.examples} - set(self.labels))
        if unknown:
            raise ValueError(f"examples use labels that are not defined: {', '.join(unknown)}")
        return self


class Capacity(Section):
    """An amount on both axes: requests at a time, and tokens in flight."""

    slots: Annotated[int, Field(ge=0)]
    tokens: Annotated[int, Field(ge=0)]


class Protected(Section):
    """What each class owns; the rest of the capacity is shared."""

    interactive: Capacity = Capacity(slots=0, tokens=0)
    batch: Capacity


class Signal(Section):
    """One source of what is known of the chat."""

    type: SignalType


class Pool(Section):
    """One model deployment: an endpoint and a capacity."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,40}$")]
    base_url: Annotated[str, Field(pattern=r"^https?://\S+$")]
    model: Annotated[str, Field(min_length=1)]
    engine: Engine = "openai"
    api_key: Secret | None = None
    capacity: Capacity
    protected: Protected
    ttft_target_seconds: Annotated[float, Field(gt=0)] = 0.8
    request_timeout_seconds: Annotated[float, Field(gt=0)] = 120.0
    signal: tuple[Signal, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        """Fill what may be left out: tokens from slots, and a protected batch share of one slot."""
        if not isinstance(data, dict):
            return data
        data = dict(data)
        capacity = data.get("capacity")
        if isinstance(capacity, dict) and isinstance(capacity.get("slots"), int):
            capacity = {"tokens": capacity["slots"] * TOKENS_PER_SLOT, **capacity}
            data["capacity"] = capacity
            share = capacity["tokens"] // max(1, capacity["slots"])
            data.setdefault("protected", {"batch": {"slots": 1, "tokens": share}})
        return data

    @model_validator(mode="after")
    def _protected_fits(self) -> Self:
        batch, interactive = self.protected.batch, self.protected.interactive
        for axis in ("slots", "tokens"):
            owned = getattr(batch, axis) + getattr(interactive, axis)
            if owned > getattr(self.capacity, axis):
                raise ValueError(
                    f"protected {axis} add up to {owned}, over the capacity of {getattr(self.capacity, axis)}"
                )
        if batch.slots < 1 or batch.tokens < 1:
            raise ValueError("protected.batch needs at least 1 slot and 1 token, or batch could starve")
        return self


class Gateway(Section):
    """The interactive door."""

    listen: Annotated[str, Field(pattern=r"^\S+:\d{1,5}$")] = "127.0.0.1:8090"


class Worker(Section):
    """How the worker processes behave; the defaults suit a night."""

    processes: Annotated[int, Field(ge=1, le=256)] = 2
    at_once: Annotated[int, Field(ge=1, le=4096)] = 256  # requests in flight in one process, at most
    attempts: Annotated[int, Field(ge=1, le=100)] = 5
    lease_seconds: Annotated[float, Field(ge=1)] = 15.0
    stop_grace_seconds: Annotated[float, Field(ge=0)] = 5.0


class Settings(BaseSettings):
    """Everything tickets-batch can be told."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix=PREFIX, env_nested_delimiter="__", validate_default=True
    )

    timezone: str = "UTC"
    deadline: Annotated[str, Field(pattern=CLOCK_TIME + "|^none$")] = "none"
    home: Path = Path(".tickets-batch")
    database_url: str | Secret | None = None
    redis_url: str | Secret | None = None
    source: Source = Source()
    classification: Classification | None = None
    pool: tuple[Pool, ...] = ()
    gateway: Gateway = Gateway()
    worker: Worker = Worker()

    @field_validator("timezone")
    @classmethod
    def _zone_exists(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ValueError, OSError) as error:
            raise ValueError('not an IANA time zone; write for example "Europe/Berlin"') from error
        return name

    @field_validator("pool")
    @classmethod
    def _names_are_distinct(cls, pools: tuple[Pool, ...]) -> tuple[Pool, ...]:
        if len({pool.name for pool in pools}) != len(pools):
            raise ValueError("two pools have the same name")
        return pools

    @property
    def zone(self) -> ZoneInfo:
        """The zone in which the business day and the deadline live."""
        return ZoneInfo(self.timezone)

    @property
    def effective_database_url(self) -> str:
        """The configured database, or SQLite under `home`."""
        if self.database_url is None:
            return f"sqlite:///{self.home.absolute() / 'tickets-batch.db'}"
        return reveal(self.database_url)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment stands over the file, whose values come in as arguments."""
        return env_settings, init_settings


def reveal(value: str | Secret) -> str:
    """A text given plainly, or the secret that it refers to."""
    return value.reveal() if isinstance(value, Secret) else value


def load(config: Path | None = None, *, model: str | None = None, labels: str | None = None) -> Settings:
    """The settings from `config`, else from the file in TICKETS_BATCH_CONFIG, else from ./tickets-batch.toml if it exists.

    Without any pool, OPENAI_BASE_URL with `model` makes one (4 slots, floor 1). `labels` ("a,b,c") stands over the file.
    Raises SettingsError, one line per key, when a file or a value cannot be used.
    """
    path = _find(config)
    values = _read(path) if path else {}
    where = str(path) if path else "the environment"
    _refuse_unknown_variables()
    if labels is not None:
        names = [name.strip() for name in labels.split(",") if name.strip()]
        values["classification"] = {**values.get("classification", {}), "labels": dict.fromkeys(names, "")}
    if "pool" not in values and PREFIX + "POOL" not in os.environ:
        values["pool"] = _pool_from_openai_variables(model)
    elif model is not None:
        values["pool"] = [{**pool, "model": model} for pool in values.get("pool", [])]
    try:
        return Settings(**values)
    except ValidationError as error:
        raise SettingsError("\n".join(_explain(where, error))) from error


def to_environment(settings: Settings) -> dict[str, str]:
    """The settings as environment variables for a child process: references to secrets, never the secrets."""
    dumped = settings.model_dump(mode="json", exclude_none=True)
    dumped["home"] = str(settings.home.absolute())
    return {
        PREFIX + key.upper(): value if isinstance(value, str) else json.dumps(value) for key, value in dumped.items()
    }


def _find(config: Path | None) -> Path | None:
    if config is None and (named := os.environ.get(CONFIG_VARIABLE)):
        config = Path(named)
    if config is not None:
        return config
    return DEFAULT_FILE if DEFAULT_FILE.is_file() else None


def _read(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SettingsError(f"cannot read the settings in {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from error
    for key in ("database_url", "redis_url"):
        _refuse_password(f"{path}: {key}", values.get(key))
    source = values.get("source")
    if isinstance(source, Mapping):
        _refuse_password(f"{path}: source.url", source.get("url"))
    return values


def _refuse_password(where: str, url: object) -> None:
    if isinstance(url, str) and "://" in url and urlsplit(url).password:
        raise SettingsError(
            f'{where} holds a password: write {{ env = "NAME" }} and export the whole URL under that name'
        )


def _pool_from_openai_variables(model: str | None) -> list[dict[str, Any]]:
    base_url = os.environ.get("OPENAI_BASE_URL")
    if not base_url:
        return []
    if model is None:
        raise SettingsError(
            "OPENAI_BASE_URL is set, but no model: add --model NAME, or write a [[pool]] in tickets-batch.toml"
        )
    pool: dict[str, Any] = {"name": "default", "base_url": base_url, "model": model, "capacity": {"slots": 4}}
    if os.environ.get("OPENAI_API_KEY"):
        pool["api_key"] = {"env": "OPENAI_API_KEY"}
    return [pool]


def _refuse_unknown_variables() -> None:
    known = set(Settings.model_fields)
    for name in os.environ:
        if name.startswith(PREFIX):
            key = name.removeprefix(PREFIX).lower().split("__")[0]
            if key not in known:
                raise SettingsError(f"the environment variable {name} names no setting{_nearest(key, known)}")


def _nearest(key: str, known: set[str]) -> str:
    close = difflib.get_close_matches(key, sorted(known), n=1, cutoff=0.5)
    return f': did you mean "{close[0]}"?' if close else f"; known are {', '.join(sorted(known))}"


def _explain(where: str, error: ValidationError) -> Iterator[str]:
    for item in error.errors(include_url=False):
        key = ".".join(str(part) for part in item["loc"] if part not in ("str", "Secret"))
        if item["type"] == "extra_forbidden":
            yield f"{where}: {key} is not a setting{_nearest(str(item['loc'][-1]), _known_beside(item['loc']))}"
        elif item["type"] == "missing":
            yield f"{where}: {key} is missing"
        else:
            yield f"{where}: {key} = {_shown(item)}: {_accepted(item)}"


def _shown(item: ErrorDetails) -> str:
    shown = repr(item["input"])
    return shown if len(shown) <= 60 else shown[:57] + "..."


def _accepted(item: ErrorDetails) -> str:
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "string_pattern_mismatch" and item["loc"][-1] == "deadline":
        return 'write HH:MM, for example "07:00", or "none"'
    return message[:1].lower() + message[1:]


def _known_beside(loc: tuple[int | str, ...]) -> set[str]:
    """The keys that the table around an unknown key accepts."""
    fields = dict(Settings.model_fields)
    for part in loc[:-1]:
        if isinstance(part, int) or part not in fields:
            continue
        section = _section_in(fields[part].annotation)
        fields = dict(section.model_fields) if section else {}
    return set(fields)


def _section_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        if found := _section_in(argument):
            return found
    return None
