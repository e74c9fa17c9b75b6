"""Text that every database can hold."""

import re

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """The text with every NUL and every lone surrogate replaced by U+FFFD.

    PostgreSQL refuses NUL, and no UTF-8 can carry a lone surrogate.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return _UNSTORABLE.sub(REPLACEMENT, text)
    return text.replace("\0", REPLACEMENT)
