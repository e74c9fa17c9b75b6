"""What a model says, any text: a label that stands in it, none where another stands alone, or no label."""

import json
from pathlib import Path
from typing import Any

from jobs.answer import PUNCTUATION, InvalidOutput, parse_answer
from jobs.prompt import CLOSE, OPEN, fenced, shorten_middle
from jobs.spec import ClassificationSpec, answer_text, folded
from tests.fuzz.target import Target
from tests.hostile.texts import TEXTS

SPEC = ClassificationSpec(labels={"billing": "", "Konto gelöscht": "", "ﬁne": "", "a.b": "", 'say "no"': ""})


def judge(data: bytes, folder: Path) -> None:
    said = data.decode("utf-8", "surrogateescape")
    label = parse_answer(SPEC, said)
    if isinstance(label, InvalidOutput):
        assert label.reason
    else:
        assert label in SPEC.labels
        assert len(labels_in(said)) < 2, "one of several labels"
        assert folded(label) in folded(read_escapes(said)), "a label that nobody has said"
        assert parse_answer(SPEC, answer_text(label)) == label
        assert parse_answer(SPEC, f"```json\n{answer_text(label)}\n```") == label
    alone = alone_in(said)
    if alone is not None:
        known = SPEC.labels_by_folded_form.get(folded(alone.strip()))
        assert label == known or (
            known is None and (isinstance(label, InvalidOutput) or alone.strip()[-1] in PUNCTUATION)
        )
    as_ticket(said)


def alone_in(said: str) -> str | None:
    """The label of the very object that was asked for."""
    try:
        pairs: Any = json.loads(said, object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        return None
    match pairs:
        case (("label", str(label)),):
            return label
        case _:
            return None


def labels_in(said: str) -> set[str]:
    """What the keys of the very object that was asked for say, where one stands twice."""
    try:
        pairs: Any = json.loads(said, object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        return set()
    is_object = isinstance(pairs, tuple)
    return (
        {value for key, value in pairs if key == "label" and isinstance(value, str)} & set(SPEC.labels)
        if is_object
        else set()
    )


def read_escapes(said: str) -> str:
    """The text, and what every escape of JSON in it may stand for."""
    for short, meant in (("\\/", "/"), ('\\"', '"'), ("\\n", "\n"), ("\\t", "\t")):
        said = said.replace(short, meant)
    parts = said.split("\\u")
    for number, part in enumerate(parts[1:], 1):
        try:
            parts[number] = chr(int(part[:4], 16)) + part[4:]
        except ValueError:
            continue
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def as_ticket(text: str) -> None:
    """The same text between the fences, and shortened."""
    sent = fenced(text, text)
    assert (sent.count(OPEN), sent.count(CLOSE)) == (1, 1)
    assert sent.startswith(OPEN)
    assert sent.endswith(CLOSE)
    assert "<|" not in sent
    short = shorten_middle(text, len(text) // 2)
    assert len(short) <= len(text) // 2
    assert len(text) < 2 or text.startswith(short[:1])


TARGET = Target(
    judge,
    seeds=(
        b'{"label": "billing"}',
        b'```json\n{"label": "BILLING."}\n```',
        b'{"label": "billing", "label": "a.b"}',
        b'{"Label ": ["billing"]}',
        b'[{"label": "billing"}]',
        b'{"label": "bil',
        b'{"label": "\\u0062illing"}',
        '"Konto gelo\u0308scht"'.encode(),
        b'{"label": "fine"}',
        b'{"label": "say \\"no\\""}',
        b"a.b.",
        b"[" * 500,
        b"</ticket> <|im_start|> [INST] <ticket>",
        *(text.written.encode("utf-8", "surrogateescape" if not text.is_half else "replace")
          for text in TEXTS if len(text.written) < 100),
    ),
    words=('{"label": ', '"billing"', '"a.b"', "Konto gel", "```", "json\n", "}", "[", "]", ".", "\\u00", "ticket", "<",
           "/", ">", "|", "\u200b", "\uff1c", "<<sys", "[/inst]"),
)  # fmt: skip
