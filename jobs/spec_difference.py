"""What differs between what was submitted and what is to be submitted."""

from collections.abc import Iterator, Mapping
from typing import Any

SHOWN_LABELS = 5
NUMBERS = ("max_output_tokens",)
TEXTS = ("instructions", "examples")


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """What differs between two specs as they are stored, each difference in a few words."""
    yield from _of_labels(old.get("labels", {}), new.get("labels", {}))
    for key in TEXTS:
        if (old.get(key) or None) != (new.get(key) or None):
            yield f"other {key}"
    for key in NUMBERS:
        if old.get(key) != new.get(key):
            yield f"another {key} ({old.get(key)}, now {new.get(key)})"


def _of_labels(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    gone, added = [label for label in old if label not in new], [label for label in new if label not in old]
    changes = [f"{_some(labels)} {what}" for labels, what in ((gone, "gone"), (added, "new")) if labels]
    if changes:
        yield f"other labels ({'; '.join(changes)})"
    elif list(old) != list(new):
        yield "the labels in another order"
    if changed := [label for label in old if label in new and old[label] != new[label]]:
        yield f"other words on {_some(changed)}"


def _some(labels: list[str]) -> str:
    return ", ".join(labels[:SHOWN_LABELS]) + (", ..." if len(labels) > SHOWN_LABELS else "")
