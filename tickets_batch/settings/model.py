"""The tables and keys of the settings, what each accepts, and what it is when nobody says otherwise.

A field's description is what a person reads when the value is not accepted.
"""

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from tickets_batch.settings.secret import URL_OR_REFERENCE, Secret, Section, Url, reveal
from tickets_batch.settings.signal import Signal

PREFIX = "TICKETS_BATCH__"
CLOCK_TIME = r"^([01]\d|2[0-3]):[0-5]\d$"
HOURS = re.compile(r"([01]\d|2[0-3]):[0-5]\d-(?:([01]\d|2[0-3]):[0-5]\d|24:00)", re.ASCII)
TOKENS_PER_SLOT = 4000  # a slot's share of the token capacity where none is given: a long ticket and its answer

Engine = Literal["vllm", "sglang", "tensorrt-llm", "tgi", "llama.cpp", "openai"]
ResultField = Literal[
    "custom_id",
    "state",
    "label",
    "error",
    "truncated",
    "reused",
    "model",
    "prompt_tokens",
    "completion_tokens",
    "latency_seconds",
    "attempts",
    "yields",
    "finished_at",
    "batch_id",
]
SINK_FIELDS: tuple[ResultField, ...] = ("custom_id", "state", "label", "error", "model", "batch_id", "finished_at")
ExportFormat = Literal["zendesk", "freshdesk", "jira"]
Text = Annotated[str, Field(min_length=1)]
ServiceUrl = Annotated[Url | None, Field(description=URL_OR_REFERENCE)]


class Columns(Section):
    """Which column of the source holds what; a JSONL source may name a nested field with dots."""

    id: Text = "id"
    subject: Text = "subject"
    body: Text = "body"
    created_at: Text = "created_at"
    updated_at: Text | None = None
    priority: Text | None = None


class Urgent(Section):
    """Which tickets go first: those with one of `values` in this column, whatever the case of the letters."""

    column: Text
    values: Annotated[tuple[Text, ...], Field(min_length=1, description='a list of texts, as in ["urgent", "high"]')]


class Source(Section):
    """Where the day's tickets come from: a file, or a SQL query with `:date`, `:starts_at`, `:ends_at`.

    `format` says whose export the file is; its columns then need no naming.
    """

    path: Text | None = None
    format: ExportFormat | None = None
    url: ServiceUrl = None
    query: Text | None = None
    columns: Columns = Columns()
    urgent: Urgent | None = None

    @model_validator(mode="after")
    def _one_order(self) -> Self:
        if self.urgent is not None and self.columns.priority is not None:
            raise ValueError("give either columns.priority, or urgent, not both")
        return self

    @model_validator(mode="after")
    def _file_or_query(self) -> Self:
        if self.path is not None and self.url is not None:
            raise ValueError("give either path, or url with query, not both")
        if (self.url is None) != (self.query is None):
            raise ValueError("url and query go together: give both, or neither")
        if self.url is not None and self.format is not None:
            raise ValueError("format is for files: a query names its own columns")
        return self


class Sink(Section):
    """A table of yours that gets the result of every ticket: `columns` says which of its columns takes what.

    A row is found again by the column that takes `custom_id`, which needs a unique key.
    """

    url: Annotated[Url, Field(description=URL_OR_REFERENCE)]
    table: Annotated[
        str,
        Field(pattern=r"^[^\s.\"]+(\.[^\s.\"]+)?$", description='a name, as in "labels" or "support.labels"'),
    ]
    columns: Annotated[
        dict[ResultField, Text],
        Field(description='which column takes what, as in { custom_id = "ticket_id", label = "label" }'),
    ] = {field: field for field in SINK_FIELDS}  # noqa: RUF012 - pydantic copies it, and the section is frozen

    @field_validator("columns")
    @classmethod
    def _names_the_ticket(cls, columns: dict[ResultField, str]) -> dict[ResultField, str]:
        if len(columns) < 2 or "custom_id" not in columns:
            raise ValueError("name a column for custom_id, which finds the row, and for something to be written")
        if len(set(columns.values())) != len(columns):
            raise ValueError("two results go into the same column")
        return columns


class Example(Section):
    """One solved ticket shown to the model."""

    text: Text
    label: Text


class Classification(Section):
    """What the model is asked: labels with descriptions, instructions, solved examples, an output cap in tokens."""

    labels: Annotated[
        dict[str, str],
        Field(
            min_length=2, description='write at least two labels, each with what it means: { billing = "charges", ... }'
        ),
    ]
    instructions: str = "You sort support tickets."
    examples: tuple[Example, ...] = ()
    max_output_tokens: Annotated[int, Field(ge=4, le=4096)] = 32

    @field_validator("labels")
    @classmethod
    def _labels_are_distinct(cls, labels: dict[str, str]) -> dict[str, str]:
        folded = [label.strip().casefold() for label in labels]
        if "" in folded:
            raise ValueError("a label is empty")
        if len(set(folded)) != len(folded):
            raise ValueError("two labels differ only in case or white space")
        return labels

    @field_validator("examples")
    @classmethod
    def _examples_use_labels(cls, examples: tuple[Example, ...], info: ValidationInfo) -> tuple[Example, ...]:
        labels = info.data.get("labels")
        unknown = sorted({example.label for example in examples} - set(labels)) if labels else []
        if unknown:
            raise ValueError(f"no such label: {', '.join(unknown)}; labels are {', '.join(labels or ())}")
        return examples


class Capacity(Section):
    """An amount on both axes: requests at a time, and tokens in flight."""

    slots: Annotated[int, Field(ge=0)]
    tokens: Annotated[int, Field(ge=0)]


class Protected(Section):
    """What each class owns; the rest of the capacity is shared."""

    interactive: Capacity = Capacity(slots=0, tokens=0)
    batch: Capacity

    @field_validator("batch")
    @classmethod
    def _batch_cannot_starve(cls, batch: Capacity) -> Capacity:
        if batch.slots < 1 or batch.tokens < 1:
            raise ValueError("at least 1 slot and 1 token, or batch could starve")
        return batch


class Pool(Section):
    """One model deployment: an endpoint and a capacity."""

    name: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9_-]{1,40}$", description="1 to 40 letters, digits, - or _"),
    ]
    base_url: Annotated[
        str,
        Field(pattern=r"^https?://[^\s/]\S*$", description='an http or https URL, as in "http://127.0.0.1:8000/v1"'),
    ]
    model: Text
    engine: Engine = "openai"
    api_key: Annotated[
        Secret | None,
        Field(description='only a reference to the key: { env = "NAME" } or { file = "/path" }'),
    ] = None
    capacity: Capacity
    protected: Protected
    ttft_target_seconds: Annotated[float, Field(gt=0)] = 0.8
    request_timeout_seconds: Annotated[float, Field(gt=0)] = 120.0
    shared_hours: Annotated[
        tuple[str, ...] | None,
        Field(description='a list of ranges in local time, as in ["22:00-05:00"]; without it the shared part is open'),
    ] = None
    cost_per_hour: Annotated[
        float | None,
        Field(ge=0, allow_inf_nan=False, description="what an hour of it costs, as a number, in whatever currency"),
    ] = None
    signal: tuple[Signal, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        """Fill what may be left out: tokens from slots, and a protected batch share of one slot."""
        capacity = data.get("capacity") if isinstance(data, dict) else None
        if not isinstance(capacity, dict) or not isinstance(capacity.get("slots"), int):
            return data
        capacity = {"tokens": capacity["slots"] * TOKENS_PER_SLOT, **capacity}
        if "protected" in data or not isinstance(capacity["tokens"], int):
            return {**data, "capacity": capacity}
        one_slot = {"slots": 1, "tokens": capacity["tokens"] // max(1, capacity["slots"])}
        return {**data, "capacity": capacity, "protected": {"batch": one_slot}}

    @field_validator("shared_hours")
    @classmethod
    def _are_ranges(cls, hours: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if hours == ():
            raise ValueError('it is empty: write at least one range, as in ["22:00-05:00"], or leave it out')
        for text in hours or ():
            if HOURS.fullmatch(text) is None:
                shown = json.dumps(text, ensure_ascii=False)
                raise ValueError(f'{shown} is no range of hours: write HH:MM-HH:MM, as in "22:00-05:00"')
            begins, ends = text.split("-")
            if begins == ends:
                raise ValueError(f'"{text}" ends when it begins: write "00:00-24:00" for the whole day')
        return hours

    @field_validator("protected")
    @classmethod
    def _protected_fits(cls, protected: Protected, info: ValidationInfo) -> Protected:
        capacity = info.data.get("capacity")
        if capacity is None:
            return protected
        for axis in ("slots", "tokens"):
            owned = getattr(protected.interactive, axis) + getattr(protected.batch, axis)
            if owned > getattr(capacity, axis):
                raise ValueError(f"{axis} add up to {owned}, over the capacity of {getattr(capacity, axis)}")
        return protected


class Gateway(Section):
    """The interactive door.

    `keys` is a reference to the keys that callers may show, one a line; without it each caller's own authorization
    goes on to the model. `max_output_tokens` caps every answer, `wait_ms` is how long a chat request may wait for room
    before it is told to come again, and `max_body_bytes` bounds one chat request.
    """

    listen: Annotated[
        str,
        Field(pattern=r"^\S+:\d{1,5}$", description='HOST:PORT, as in "127.0.0.1:8090"'),
    ] = "127.0.0.1:8090"
    keys: Annotated[
        Secret | None,
        Field(description='only a reference to the keys, one a line: { file = "/path" } or { env = "NAME" }'),
    ] = None
    max_output_tokens: Annotated[int, Field(ge=1)] = 1024
    wait_ms: Annotated[int, Field(ge=0, le=5000)] = 300
    max_body_bytes: Annotated[int, Field(ge=1024)] = 4 * 1024 * 1024
    max_connections: Annotated[int, Field(ge=1)] = 1000


class Scheduler(Section):
    """`metrics_listen` is where the scheduler shows its metrics to Prometheus; without it nowhere.

    `holdout` is the share of the minutes in which batch stays at its floor whatever the load, so that the report can
    tell what batch costs the chat.
    """

    metrics_listen: Annotated[
        str | None,
        Field(pattern=r"^\S+:\d{1,5}$", description='HOST:PORT, as in "127.0.0.1:9102"'),
    ] = None
    holdout: Annotated[float, Field(ge=0, le=0.5, description="a share from 0 to 0.5; 0 holds out nothing")] = 0.02


class Alert(Section):
    """Who is told when a batch may miss its deadline, and when it has ended.

    `webhook` is a reference to the URL, which may hold a key.
    """

    webhook: Annotated[
        Secret | None,
        Field(description='only a reference to the URL: { env = "NAME" } or { file = "/path" }'),
    ] = None


class Worker(Section):
    """How the worker processes behave; the defaults suit a night.

    `at_once` is how many requests one process keeps in flight at most, `attempts` how many calls one job may spend.
    `metrics_listen` is where the first process of a command shows its metrics to Prometheus, the second on the next
    port, and so on; without it nowhere.
    """

    processes: Annotated[int, Field(ge=1, le=256)] = 2
    at_once: Annotated[int, Field(ge=1, le=4096)] = 256
    attempts: Annotated[int, Field(ge=1, le=100)] = 5
    lease_seconds: Annotated[float, Field(ge=1)] = 15.0
    stop_grace_seconds: Annotated[float, Field(ge=0)] = 5.0
    metrics_listen: Annotated[
        str | None,
        Field(pattern=r"^\S+:\d{1,5}$", description='HOST:PORT, as in "127.0.0.1:9103"'),
    ] = None


class Settings(BaseSettings):
    """Everything tickets-batch can be told. Made by `load`; made directly it does not read the environment."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix=PREFIX, env_nested_delimiter="__", validate_default=True
    )

    timezone: Annotated[str, Field(description='an IANA time zone, as in "Europe/Berlin"')] = "UTC"
    deadline: Annotated[
        str,
        Field(pattern=CLOCK_TIME + "|^none$", description='HH:MM as text, as in "07:00", or "none"'),
    ] = "none"
    deadline_grace_seconds: Annotated[float, Field(ge=0, le=300)] = 2.0  # for what is at the model at the deadline
    home: Path = Path(".tickets-batch")
    database_url: ServiceUrl = None
    redis_url: ServiceUrl = None
    source: Source = Source()
    sink: Sink | None = None
    classification: Classification | None = None
    pool: Annotated[
        tuple[Pool, ...],
        Field(description="a list of pools: [[pool]] in the file, JSON in the environment"),
    ] = ()
    gateway: Gateway = Gateway()
    scheduler: Scheduler = Scheduler()
    alert: Alert = Alert()
    worker: Worker = Worker()

    @field_validator("timezone")
    @classmethod
    def _zone_exists(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ValueError, OSError, KeyError) as error:
            raise ValueError('not an IANA time zone; write for example "Europe/Berlin"') from error
        return name

    @field_validator("home")
    @classmethod
    def _home_of_the_user(cls, home: Path) -> Path:
        try:
            return home.expanduser()
        except RuntimeError as error:
            raise ValueError("its ~ stands for no known user's directory") from error

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
        return f"sqlite:///{self.database_file}" if self.database_url is None else reveal(self.database_url)

    @property
    def database_file(self) -> Path:
        """The SQLite file under `home` that is used where no database is configured."""
        return self.home.absolute() / "tickets-batch.db"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what `load` has merged: its rule for tables that replace each other is not the library's."""
        return (init_settings,)
