"""What may be said of an engine's error message: bounded, without the ticket's text and without the key."""

import re

from jobs.text import masked, storable
from tickets_batch.words import printable

DETAIL_CHARS = 300
QUOTED_CHARS = 1000  # of an engine's message, before anything is taken out of it
ECHO_CHARS = 8  # as many letters and digits in a row that also stand in the ticket are taken for its text

_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
_ECHOED_INPUT = re.compile(r"""['"]input['"]\s*:|\binput_value=""")
_NOT_ALPHANUMERIC = re.compile(r"[\W_]+")


def bounded(text: str, chars: int = DETAIL_CHARS) -> str:
    """`text` as one line of at most `chars` characters that every database takes."""
    line = " ".join(printable(storable(text)).split())
    return line if len(line) <= chars else line[: chars - 1] + "…"


class Censor:
    """Takes the ticket and the key out of what an engine says; made for one call."""

    def __init__(self, ticket: str, secret: str | None) -> None:
        self._ticket = ticket
        self._secret = secret
        self._folded: str | None = None

    def __call__(self, message: str) -> str:
        """`message` as one line, with an ellipsis wherever it repeats the ticket, whatever its case and punctuation."""
        said = _ECHOED_INPUT.split(_unescape(message[:QUOTED_CHARS]), maxsplit=1)[0]
        return bounded(self._without_echo(masked(said, self._secret)), QUOTED_CHARS)

    def _without_echo(self, message: str) -> str:
        if self._folded is None:  # only now: few calls fail
            self._folded = _NOT_ALPHANUMERIC.sub("", self._ticket.casefold())
        folded = [
            (letter, at)
            for at, character in enumerate(message)
            if character.isalnum()
            for letter in character.casefold()
        ]
        letters = "".join(letter for letter, _ in folded)
        said = list(message)
        for start in range(len(letters) - ECHO_CHARS + 1):
            if letters[start : start + ECHO_CHARS] in self._folded:
                first, last = folded[start][1], folded[start + ECHO_CHARS - 1][1]
                said[first : last + 1] = "\0" * (last + 1 - first)
        return re.sub("\0+", "…", "".join(said))


def _unescape(message: str) -> str:
    r"""`message` with \u escapes and escaped line ends read, in case the engine quotes what it was sent."""
    plain = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), message)
    plain = plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return plain.replace("\\n", " ").replace("\\r", " ").replace("\\t", " ")
