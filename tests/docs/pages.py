"""Which part of which page is generated from what; each stands between two markers."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.docs.commands import help_of_all
from tests.docs.settings_table import everyday_table, other_tables

CHECKOUT = Path(__file__).resolve().parents[2]
MADE: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"the settings of every day": everyday_table},
    "docs/settings.md": {"the other settings": other_tables},
    "docs/commands.md": {"the help of every verb": help_of_all},
}


def as_generated(page: str, text: str) -> str:
    """The text of a page with its generated parts as the code has them now."""
    for name, make in MADE[page].items():
        begins, ends = f"<!-- {name}: made by make docs -->", f"<!-- {name}: end -->"
        before, marker, rest = text.partition(begins)
        _, end_marker, after = rest.partition(ends)
        assert marker, f"{page} lacks {begins}"
        assert end_marker, f"{page} lacks {ends}"
        text = f"{before}{begins}\n\n{make()}\n\n{ends}{after}"
    return text


def without_generated(page: str, text: str) -> str:
    """The text of a page as people wrote it."""
    for name in MADE.get(page, ()):
        marks = (f"<!-- {name}: made by make docs -->", f"<!-- {name}: end -->")
        text = re.sub(f"{re.escape(marks[0])}.*?{re.escape(marks[1])}", "", text, flags=re.DOTALL)
    return text


def write() -> Iterator[Path]:
    """Bring every page up to date; those that changed."""
    for page in MADE:
        path = CHECKOUT / page
        text = path.read_text(encoding="utf-8")
        generated = as_generated(page, text)
        if generated != text:
            path.write_text(generated, encoding="utf-8")
            yield path
