"""Why settings were refused, in words: one line per key, with where it was set, its value and what is accepted."""

import difflib
import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, get_args

from pydantic import BaseModel, Tag
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from tickets_batch.settings.accepts import Accepts
from tickets_batch.settings.model import PREFIX, Settings
from tickets_batch.settings.secret import Secret
from tickets_batch.words import printable

Location = tuple[int | str, ...]

WORDS = {
    "model_type": "write a table, { key = value, ... }",
    "dict_type": "write a table, { key = value, ... }",
    "tuple_type": "write a list, [ ... ]",
    "string_type": "write text in quotes",
}
# For these the pattern or the type alone says too little: the field's own words are better.
IN_ITS_WORDS = {"string_pattern_mismatch", "too_short", *WORDS}
LONGEST_VALUE = 60
_USER = re.compile(r"(?<![^/\s])[^/\s]*@")  # in what should be a URL: who calls, and a password


def explain(file: str, errors: Iterable[ErrorDetails], names: Mapping[str, str]) -> list[str]:
    """One line per key; a key that was set by an environment variable is named with it.

    `names` are keys that stand for something else, by which a person knows them.
    """
    lines: dict[str, str] = {}
    for item in errors:
        loc = tuple(part for part in item["loc"] if not _is_tag(part) and part != "[key]")
        key = ".".join(map(str, loc))
        if key in names:
            lines.setdefault(key, _problem(names[key], loc, item))
        else:
            lines.setdefault(key, f"{_origin(loc, file)}: {_problem(key, loc, item)}")
    return [printable(line) for line in lines.values()]


def nearest(key: str, known: Collection[str]) -> str:
    """Words that lead from an unknown key to the one that was meant."""
    close = difflib.get_close_matches(key.lower(), sorted(known), n=1, cutoff=0.5)
    return f': did you mean "{close[0]}"?' if close else f"; known are {', '.join(sorted(known))}"


def _problem(key: str, loc: Location, item: ErrorDetails) -> str:
    if item["type"] == "extra_forbidden":
        return f"{key} is not a setting{nearest(str(loc[-1]), _fields_beside(item['loc']))}"
    if item["type"] == "missing":
        return f"{key} is missing"
    field = _field_at(item["loc"])
    shown = "" if _may_be_secret(field) else _shown(item["input"])
    return f"{key} = {shown}: {_accepted(field, item)}" if shown else f"{key}: {_accepted(field, item)}"


def _may_be_secret(field: FieldInfo | None) -> bool:
    """True where a reference belongs: what stands there instead may be the secret itself."""
    return field is not None and _section_in(field.annotation) is Secret


def _shown(value: object) -> str:
    """The value as it was given; nothing for whole tables and lists, whose message says which part is meant."""
    if isinstance(value, dict | list | tuple | BaseModel):
        return ""
    shown = f'"{_USER.sub("***@", value)}"' if isinstance(value, str) else str(value)
    return shown if len(shown) <= LONGEST_VALUE else shown[: LONGEST_VALUE - 3] + "..."


def _accepted(field: FieldInfo | None, item: ErrorDetails) -> str:
    words = next((one.words for one in field.metadata if isinstance(one, Accepts)), None) if field else None
    if item["type"] in IN_ITS_WORDS and words:
        return words
    if item["type"] in WORDS:
        return WORDS[item["type"]]
    message = item["msg"].removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _origin(loc: Location, file: str) -> str:
    for end in range(len(loc), 0, -1):
        name = PREFIX + "__".join(map(str, loc[:end])).upper()
        if name in os.environ:
            return f"the environment variable {name}"
    return file


def _is_tag(part: int | str) -> bool:
    """True for the name of one of several kinds of table, which no file spells."""
    return str(part).startswith("<")


def _field_at(loc: Location) -> FieldInfo | None:
    parts = [part for part in loc if not _is_tag(part)]
    return _fields_beside(loc).get(str(parts[-1]))


def _fields_beside(loc: Location) -> dict[str, FieldInfo]:
    """The keys that the table around the last one accepts; a tag before them says which kind of table it is."""
    fields = Settings.model_fields
    annotation: Any = None
    while loc and _is_tag(loc[-1]):
        loc = loc[:-1]
    for part in loc[:-1]:
        if part in fields:
            annotation = fields[str(part)].annotation
            section = _section_in(annotation)
        elif _is_tag(part):
            section = _section_in(annotation, str(part))
        else:
            continue
        fields = section.model_fields if section else {}
    return fields


def _section_in(annotation: Any, tag: str | None = None) -> type[BaseModel] | None:
    """The table that a field holds, a list of, or may hold beside plain text; of several kinds, the one so tagged."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation if tag is None else None
    kind, *metadata = get_args(annotation) or (None,)
    if tag is not None and Tag(tag) in metadata:
        return _section_in(kind)
    return next((found for argument in get_args(annotation) if (found := _section_in(argument, tag))), None)
