"""The label in what the model said, or why there is none.

The answer asked for is strict JSON, {"label": "..."}. What weaker engines make of it is understood as long as one label
is meant without any doubt: in a code fence, in other case, with punctuation behind it, as a list of one, as the bare
label. Prose is not searched for labels, and an answer that could mean two labels means none.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from jobs.spec import ClassificationSpec, folded

LABEL_KEY = "label"
MOST_LABEL_CHARS = 1000  # of a label as an engine may write it; what is longer is no label
PUNCTUATION = ".,;:!。"  # not "?": a question is not an answer
FENCE = re.compile(r"\A(`{3,9}|~{3,9})(?:[A-Za-z0-9]*[ \t]*\n|json\b)?(.*?)(?:\1)?\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class InvalidOutput:
    """There is no label in the answer. `reason` is in fixed words: it never repeats the model or the ticket."""

    reason: str


EMPTY = InvalidOutput("empty")
CUT_SHORT = InvalidOutput("cut short")
NOT_JSON = InvalidOutput("not the JSON that was asked for")
NO_LABEL = InvalidOutput("JSON without a label")
FOREIGN_LABEL = InvalidOutput("a label outside the set")
SEVERAL_LABELS = InvalidOutput("more than one label")


def parse_answer(spec: ClassificationSpec, raw: str) -> str | InvalidOutput:
    """The label of `spec` that `raw` names, spelled as the spec spells it."""
    text = FENCE.sub(r"\2", raw.strip()).strip()
    if not text:
        return EMPTY
    try:
        return _label_in(spec, _DECODER.decode(text))
    except json.JSONDecodeError as error:
        return _bare_label(spec, text, error)
    except (ValueError, RecursionError):  # numbers too long to read, brackets too deep
        return NOT_JSON


class _Pairs(tuple[tuple[str, object], ...]):
    """A JSON object as written: a key that stands twice in it does stand twice."""

    def values_of(self, key: str) -> list[object]:
        return [value for name, value in self if name.strip().casefold() == key]


_DECODER = json.JSONDecoder(object_pairs_hook=_Pairs)


def _label_in(spec: ClassificationSpec, value: object) -> str | InvalidOutput:
    match value:
        case str():
            return _known(spec, value) or FOREIGN_LABEL
        case _Pairs():
            return _agreed(_label_in(spec, answer) for answer in value.values_of(LABEL_KEY))
        case list():
            return _label_in(spec, value[0]) if len(value) == 1 else SEVERAL_LABELS if value else NO_LABEL
        case _:
            return NO_LABEL


def _agreed(answers: Iterable[str | InvalidOutput]) -> str | InvalidOutput:
    """The one answer that all of them are."""
    different = set(answers)
    return different.pop() if len(different) == 1 else SEVERAL_LABELS if different else NO_LABEL


def _bare_label(spec: ClassificationSpec, text: str, error: json.JSONDecodeError) -> str | InvalidOutput:
    if label := _known(spec, text):
        return label
    if text[0] in '{["' and (error.pos >= len(text) or error.msg.startswith("Unterminated string")):
        return CUT_SHORT
    return NOT_JSON


def _known(spec: ClassificationSpec, text: str) -> str | None:
    """The label that the text is, but for case, white space around it and punctuation behind it."""
    text = text.strip()
    while 0 < len(text) <= MOST_LABEL_CHARS:
        if label := spec.labels_by_folded_form.get(folded(text)):
            return label
        if text[-1] not in PUNCTUATION:
            return None
        text = text[:-1].rstrip()
    return None
