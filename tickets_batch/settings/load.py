"""Reading the settings, and handing them on to a child process."""

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource
from pydantic_settings.exceptions import SettingsError as UnreadableVariable

from tickets_batch.errors import SettingsError
from tickets_batch.settings.explain import explain, nearest
from tickets_batch.settings.model import PREFIX, Settings
from tickets_batch.settings.secret import holds_password

CONFIG_VARIABLE = "TICKETS_BATCH_CONFIG"
DEFAULT_FILE = Path("tickets-batch.toml")
# Of a pool that no settings name: where its keys came from.
OPENAI_NAMES = {"pool.0.base_url": "OPENAI_BASE_URL", "pool.0.model": "--model"}
MOST_BYTES = 256 * 1024  # far more than the largest sets of labels and examples have
# To read a key with dots costs the square of its parts: 32 KB of them take seconds, a megabyte takes hours.
_ENDLESS_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){64}""")
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
# Tables that stand over the file's as a whole: two sets of labels, or two references to a secret, do not add up.
WHOLE_TABLES = {"labels", "database_url", "redis_url", "url"}


def load(config: Path | None = None, *, model: str | None = None, labels: str | None = None) -> Settings:
    """The settings from one file under the environment's, under the arguments.

    The file is `config`, else the one named in TICKETS_BATCH_CONFIG (empty: none), else ./tickets-batch.toml if it
    exists. Without any pool, OPENAI_BASE_URL with `model` makes one (4 slots, floor 1). `labels` is "a,b,c".
    Raises SettingsError, one line per key, when a file or a value cannot be used.
    """
    path = _find(config)
    values = _merged(_read(path) if path else {}, _from_variables())
    if place := next(_unwritable(values, ()), None):
        raise SettingsError(f"{'.'.join(place)} holds a NUL or half a character, which no name, path or text may have")
    if labels is not None:
        _take_labels(values, labels)
    names: Mapping[str, str] = {}
    if not values.get("pool"):
        values["pool"], names = _pool_from_openai_variables(model), OPENAI_NAMES
    elif model is not None and isinstance(values["pool"], list):
        values["pool"] = [{**pool, "model": model} if isinstance(pool, dict) else pool for pool in values["pool"]]
    try:
        return Settings(**values)
    except ValidationError as error:
        problems = explain(str(path or "settings"), error.errors(include_url=False), names)
        raise SettingsError("\n".join(problems)) from error


def to_environment(settings: Settings) -> dict[str, str]:
    """The settings as variables for a child process, which then reads no file: references, never the secrets behind."""
    dumped = settings.model_dump(mode="json", exclude_none=True)
    dumped["home"] = str(settings.home.absolute())
    variables = {PREFIX + key.upper(): v if isinstance(v, str) else json.dumps(v) for key, v in dumped.items()}
    return {**variables, CONFIG_VARIABLE: ""}


def _find(config: Path | None) -> Path | None:
    if config is not None:
        return config
    if (named := os.environ.get(CONFIG_VARIABLE)) is not None:
        return Path(named) if named else None
    return DEFAULT_FILE if DEFAULT_FILE.is_file() else None


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise SettingsError(f"{path} is larger than {MOST_BYTES >> 10} KB: is it the settings?")
        text = content.decode("utf-8-sig")
        if _ENDLESS_KEY.search(text):
            raise SettingsError(f"{path} is not usable: a key with that many dots is no setting")
        values = tomllib.loads(text)
    except OSError as error:
        raise SettingsError(f"cannot read the settings in {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not UTF-8 text: save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from error
    except RecursionError:
        raise SettingsError(f"{path} is not usable: it is nested too deeply") from None
    if problems := list(_passwords_in(values)):
        raise SettingsError("\n".join(f"{path}: {problem}" for problem in problems))
    return values


def _unwritable(value: object, place: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The places of texts that no path, database or request can carry."""
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from _unwritable(key, place)
            yield from _unwritable(inside, (*place, key))
    elif isinstance(value, list):
        for number, inside in enumerate(value):
            yield from _unwritable(inside, (*place, str(number)))
    elif isinstance(value, str) and _UNWRITABLE.search(value):
        yield place


def _passwords_in(values: Mapping[str, Any]) -> Iterator[str]:
    """Passwords that stand in the file itself, where everyone who may read the settings could read them."""
    urls = {key: values.get(key) for key in ("database_url", "redis_url")}
    for name in ("source", "sink"):
        table = values.get(name)
        urls[f"{name}.url"] = table.get("url") if isinstance(table, dict) else None
    for key, url in urls.items():
        if holds_password(url):
            yield f'{key} holds a password: write {{ env = "NAME" }} and export the whole URL under that name'
    pools = values.get("pool")
    for number, pool in enumerate(pools if isinstance(pools, list) else ()):
        if isinstance(pool, dict) and holds_password(pool.get("base_url")):
            yield f'pool.{number}.base_url holds a password: give it as api_key = {{ env = "NAME" }} instead'
        signals = pool.get("signal") if isinstance(pool, dict) else None
        for place, signal in enumerate(signals if isinstance(signals, list) else ()):
            if isinstance(signal, dict) and holds_password(signal.get("url")):
                yield f"pool.{number}.signal.{place}.url holds a password: only authorization may, by reference"


def _from_variables() -> dict[str, Any]:
    _refuse_unknown_variables()
    source = EnvSettingsSource(Settings)
    values: dict[str, Any] = {}
    for key, field in Settings.model_fields.items():
        raw, name, is_complex = source.get_field_value(field, key)
        try:
            value = source.prepare_field_value(key, field, raw, is_complex)
        except (ValueError, UnreadableVariable) as error:
            raise SettingsError(f"the environment variable {PREFIX}{key.upper()} is not JSON: {error}") from error
        except RecursionError:
            raise SettingsError(f"the environment variable {PREFIX}{key.upper()} is nested too deeply") from None
        if value is not None:
            values[name] = value
    return values


def _refuse_unknown_variables() -> None:
    known = Settings.model_fields
    for name in os.environ:
        if name.upper().startswith(PREFIX):
            key = name[len(PREFIX) :].lower().split("__")[0]
            if key not in known:
                raise SettingsError(f"the environment variable {name} names no setting{nearest(key, known)}")


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Both, table by table; where both have a value the one `over` the other stands."""
    result = dict(under)
    for key, value in over.items():
        old = result.get(key)
        both_tables = isinstance(old, dict) and isinstance(value, dict) and key not in WHOLE_TABLES
        result[key] = _merged(old, value) if both_tables else value  # type: ignore[arg-type]
    return result


def _take_labels(values: dict[str, Any], labels: str) -> None:
    names = [name.strip() for name in labels.split(",") if name.strip()]
    if len(set(names)) < 2:
        raise SettingsError(f'--labels "{labels}": write at least two, separated by commas')
    table = values.setdefault("classification", {})
    if isinstance(table, dict):
        values["classification"] = {**table, "labels": dict.fromkeys(names, "")}


def _pool_from_openai_variables(model: str | None) -> list[dict[str, Any]]:
    base_url = os.environ.get("OPENAI_BASE_URL")
    if not base_url or model is None:  # readers need no pool; who does, says what is missing
        return []
    pool: dict[str, Any] = {"name": "default", "base_url": base_url, "model": model, "capacity": {"slots": 4}}
    if os.environ.get("OPENAI_API_KEY"):
        pool["api_key"] = {"env": "OPENAI_API_KEY"}
    return [pool]
