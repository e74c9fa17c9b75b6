"""Words for people: around numbers, and fit for a terminal."""


def counted(count: int, noun: str) -> str:
    """A number with its noun: `1 ticket`, `3,080 tickets`, `2 batches`, `0 people`."""
    if count == 1:
        return f"1 {noun}"
    plural = "people" if noun == "person" else f"{noun}es" if noun.endswith(("ch", "s", "x")) else f"{noun}s"
    return f"{count:,} {plural}"


def printable(line: str) -> str:
    """The line without what would begin another, move a terminal's cursor or change its colours."""
    return line if line.isprintable() else "".join(sign if sign.isprintable() else " " for sign in line)
