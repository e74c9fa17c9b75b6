"""What must hold of whatever comes out of a parser."""

from tickets_batch.errors import UserError

LONGEST_LINE = 4000  # of an error about an input of at most some thousand bytes


def one_line(error: Exception) -> str:
    """The words of an error for people: one line, of bounded length, that a terminal and a log can show."""
    said = str(error)
    assert said, "an error says nothing"
    assert len(said) < LONGEST_LINE, f"an error of {len(said)} characters"
    assert "\n" not in said, f"an error of several lines: {said!r}"
    storable(said)
    return said


def storable(text: str) -> None:
    """Every database takes it."""
    text.encode()
    assert "\0" not in text, f"NUL in {text!r}"


def is_plain(text: str) -> bool:
    """Whether a text is tidied by nothing but the white space around it: no markup, no NUL, no half a character."""
    return not set(text) & {"<", "\0", "\r"} and not any("\ud800" <= letter <= "\udfff" for letter in text)


def lines_of(error: UserError) -> list[str]:
    """An error with a line for each of several problems."""
    lines = str(error).split("\n")
    for line in lines:
        one_line(UserError(line))
    return lines
