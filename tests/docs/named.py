"""What the pages name: their text, the code in it, tables, and the commands that they show."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.docs.pages import CHECKOUT, without_generated

PAGES = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").glob("*.md"))]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")


def text(page: str) -> str:
    """A page by its name from the checkout, as it stands."""
    return (CHECKOUT / page).read_text(encoding="utf-8")


def section(page: str, title: str) -> str:
    """The part of a page under a heading of the second level."""
    return text(page).partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def written() -> str:
    """All pages, without what is generated."""
    names = (path.relative_to(CHECKOUT).as_posix() for path in PAGES)
    return "\n".join(without_generated(name, text(name)) for name in names)


def rows(part: str) -> list[list[str]]:
    """The cells of every row of the tables in a part of a page, without their headings."""
    lines = [line for line in part.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    heads = {place - 1 for place, row in enumerate(cells) if set("".join(row)) <= set("- ")}
    return [row for place, row in enumerate(cells) if place not in heads and place - 1 not in heads]


def spans(part: str) -> list[str]:
    """What stands between single backticks, each on one line."""
    prose = FENCED.sub("", part)
    return [" ".join(span.replace("\\|", "|").split()) for span in re.findall(r"`([^`]+)`", prose)]


def shown_lines(part: str) -> Iterator[str]:
    """The commands of the console blocks, and the lines of cron's, without their comments."""
    for language, block in FENCED.findall(part):
        if language == "console":
            yield from (re.sub(r"\s#.*", "", line[2:]) for line in block.splitlines() if line.startswith("$ "))


@dataclass(frozen=True, slots=True)
class Shown:
    """A call of the command as a page shows it."""

    words: tuple[str, ...]

    @property
    def options(self) -> set[str]:
        """The options in it."""
        return {option for word in self.words for option in OPTION.findall(word.partition("=")[0])}


def calls(part: str) -> list[Shown]:
    """Every call that begins with the name of the command, in console blocks and in the text."""
    found = []
    for line in (*shown_lines(part), *spans(part)):
        for call in re.findall(r"(?:^|\s)(?:tickets-batch|run --rm(?: -T)? cli) ([^|;&>]+)", line):
            found.append(Shown(tuple(re.sub(r"[\[\]]", "", call).split())))
    return found
