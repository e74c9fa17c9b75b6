"""Text that every database can hold, and that holds no secret."""

import re

MASK = "***"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
LEAST_SECRET_CHARS = 4  # what is shorter keeps nobody out, and stands in any text
LEAST_LONG_SECRET_CHARS = 8  # a word may well be shorter
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """The text with every NUL and every lone surrogate replaced by U+FFFD.

    PostgreSQL refuses NUL, and no UTF-8 can carry a lone surrogate.
    """
    if text.isascii():  # known without reading it
        return text.replace("\0", REPLACEMENT) if "\0" in text else text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _UNSTORABLE.sub(REPLACEMENT, text)
    return text.replace("\0", REPLACEMENT)


def masked(text: str, secret: str | None) -> str:
    """The text with asterisks in place of the secret.

    A short one is taken out only where it stands alone, one of under four characters not at all: the text would be
    garbled, and nothing hidden.
    """
    if not secret or len(secret) < LEAST_SECRET_CHARS:
        return text
    if len(secret) >= LEAST_LONG_SECRET_CHARS:
        return text.replace(secret, MASK)
    return re.sub(rf"(?<![\w-]){re.escape(secret)}(?![\w-])", MASK, text)
