"""Every key of the settings, with its default and what it is for, from the models that accept it."""

import json
import types
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tickets_batch.settings import Pool, Secret, Settings
from tickets_batch.settings.pool import TOKENS_PER_SLOT
from tickets_batch.settings.signal import UnknownSignal

HEAD = "| key | default | is |\n| --- | --- | --- |"
EVERYDAY = (
    *("timezone", "deadline", "home", "database_url", "redis_url"),
    *("source.path", "source.format", "source.columns.id", "source.columns.subject", "source.columns.body"),
    *("source.columns.created_at", "classification.labels", "classification.instructions"),
    *("pool.name", "pool.base_url", "pool.model", "pool.engine", "pool.api_key", "pool.capacity.", "pool.protected."),
    *("pool.ttft_target_seconds", "pool.shared_hours", "pool.signal.type", "gateway.listen", "alert.webhook"),
)
LEAST_POOL = {"name": "gpu", "base_url": "http://127.0.0.1:8000/v1", "model": "m", "capacity": {"slots": 8}}


@dataclass(frozen=True, slots=True)
class Row:
    """One key. `kind` is the type of the signal that has it, empty for every other key."""

    key: str
    kind: str
    default: str
    says: str

    @property
    def is_everyday(self) -> bool:
        """Whether most people have to know it."""
        return any(self.key == key or (key.endswith(".") and self.key.startswith(key)) for key in EVERYDAY)

    def as_markdown(self) -> str:
        """The row of a table."""
        shown = f'`{self.key} = "{self.kind}"`' if self.key.endswith(".type") else f"`{self.key}`"
        if self.kind and not self.key.endswith(".type"):
            shown += f" of `{self.kind}`"
        return " | ".join((f"| {shown}", self.default, f"{self.says} |")).replace("|  |", "| |")


def everyday_table() -> str:
    """The table of the keys that most people have to know."""
    return "\n".join([HEAD, *(row.as_markdown() for row in rows() if row.is_everyday)])


def other_tables() -> str:
    """All other keys, a table for each part of the file."""
    others = [row for row in rows() if not row.is_everyday]
    parts = []
    for part, found in groupby(others, lambda row: row.key.partition(".")[0] if "." in row.key else ""):
        title = f"## `[[{part}]]`" if part == "pool" else f"## `[{part}]`"
        parts.append("\n".join([*([title, ""] if part else []), HEAD, *(row.as_markdown() for row in found)]))
    return "\n\n".join(parts)


def rows() -> list[Row]:
    """Every key that can be set, in the order of the models."""
    return list(_rows(Settings, "", "", ""))


def _rows(section: type[BaseModel], before: str, kind: str, whose: str) -> Iterator[Row]:
    for name, field in section.model_fields.items():
        key = f"{before}{name}"
        inner = list(_sections(field.annotation))
        if inner:
            for one in inner:
                yield from _rows(one, f"{key}.", _kind(one), field.description or "")
        else:
            assert field.description, f"{key} has no description"
            says = f"{whose}: {field.description}" if whose else field.description
            allowed = "" if name == "type" or get_origin(field.annotation) is dict else _allowed(field.annotation)
            yield Row(key, kind, _default(key, field), f"{says}: {allowed}" if allowed else says)


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    """The tables that a field holds, a list of, or one of several kinds of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if annotation not in (Secret, UnknownSignal):
            yield annotation
    elif get_origin(annotation) in (Annotated, tuple, Union, types.UnionType):
        for argument in get_args(annotation):
            yield from _sections(argument)


def _kind(section: type[BaseModel]) -> str:
    """The one type that a signal's table has."""
    field = section.model_fields.get("type")
    return str(get_args(field.annotation)[0]) if field and get_origin(field.annotation) is Literal else ""


def _default(key: str, field: FieldInfo) -> str:
    default = field.default
    if field.is_required():
        return _filled_in(key)
    if isinstance(default, dict):
        return ", ".join(f"`{name}`" if name == value else f"`{name} = {value}`" for name, value in default.items())
    if default is None:
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{json.dumps(default, default=str)}`"


def _filled_in(key: str) -> str:
    """What stands for a key of a pool that says nothing of it; `required` where nothing does."""
    table, _, rest = key.partition(".")
    if table != "pool" or key.endswith(".type"):
        return "" if key.endswith(".type") else "required"
    value: Any = Pool.model_validate(LEAST_POOL)
    given: Any = LEAST_POOL
    for part in rest.split("."):
        value = getattr(value, part)
        given = given.get(part) if isinstance(given, dict) else None
    if given is not None:
        return "required"
    if key == "pool.capacity.tokens":
        return f"{TOKENS_PER_SLOT:,} a slot"
    return "a slot's share" if key == "pool.protected.batch.tokens" else f"`{value}`"


def _allowed(annotation: Any) -> str:
    """The values of a closed set; empty where the field takes others."""
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(annotation))
    return next((found for argument in get_args(annotation) if (found := _allowed(argument))), "")
