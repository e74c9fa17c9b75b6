"""What a PromQL expression asks for, and whether the services show it. Its syntax is for Prometheus's own checker."""

import re
from collections.abc import Iterator, Mapping

from tests.support.metrics import OPEN, Known

FOREIGN = {"up": {"job", "instance"}}  # made by Prometheus itself
SCRAPED = {"job", "instance"}  # put on every series by Prometheus

_SELECTOR = re.compile(r"\b(?P<name>tickets_batch_\w+|up)\b(?:\{(?P<matchers>[^}]*)\})?")
_MATCHER = re.compile(r'\s*(?P<label>\w+)\s*(?P<operator>=~|!~|!=|=)\s*"(?P<value>[^"]*)"\s*')
_LABELS = re.compile(r"\b(?:by|on|ignoring|without|group_left|group_right)\s*\(([^)]*)\)")


def faults(expression: str, known: Mapping[str, Known]) -> list[str]:
    """What an expression asks for that no service shows."""
    return [*_bracket_faults(expression), *_selector_faults(expression, known), *_label_faults(expression, known)]


def names(expression: str) -> set[str]:
    """The series that an expression reads."""
    return {match["name"] for match in _SELECTOR.finditer(expression)}


def _bracket_faults(expression: str) -> Iterator[str]:
    bare = re.sub(r'"[^"]*"', "", expression)
    for opening, closing in ("()", "{}", "[]"):
        if bare.count(opening) != bare.count(closing):
            yield f"{opening}{closing} do not match: {expression}"


def _selector_faults(expression: str, known: Mapping[str, Known]) -> Iterator[str]:
    for match in _SELECTOR.finditer(expression):
        name = match["name"]
        if name not in known and name not in FOREIGN:
            yield f"no service shows {name}"
            continue
        labels = known[name].labels if name in known else {}
        for text in filter(None, (match["matchers"] or "").split(",")):
            matcher = _MATCHER.fullmatch(text)
            if matcher is None:
                yield f"not a matcher: {text}"
            elif matcher["label"] not in {*labels, *SCRAPED}:
                yield f"{name} has no label {matcher['label']}"
            elif matcher["operator"] == "=" and matcher["label"] in labels and matcher["label"] not in OPEN:
                value = matcher["value"]
                if value not in labels[matcher["label"]] and not value.startswith("$"):
                    yield f"{name} never has {matcher['label']}={value}"


def _label_faults(expression: str, known: Mapping[str, Known]) -> Iterator[str]:
    there = {label for name in names(expression) if name in known for label in known[name].labels} | SCRAPED
    for match in _LABELS.finditer(expression):
        for label in filter(None, (part.strip() for part in match[1].split(","))):
            if label not in there:
                yield f"nothing in it has a label {label}: {expression}"
