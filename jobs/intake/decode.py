"""A file of text as people have it: gzip or not, in one of several encodings, line by line in constant memory."""

import gzip
import io
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from tickets_batch.errors import UserError

SAMPLE_BYTES = 65_536
MANY_CONTROLS = 500  # control characters in a sample: a few are dirt, these are no text
LINE_LIMIT_CHARACTERS = 16 * 1024 * 1024

GZIP = b"\x1f\x8b"
_SIGNATURES = (
    (b"PK\x03\x04", "an Excel workbook or a zip archive: save it as CSV (UTF-8), or unpack it"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook: save it as CSV (UTF-8)"),
    (b"%PDF", "a PDF: export the tickets as CSV or JSONL"),
    (b"SQLite format 3", "an SQLite database: give it as source.url with source.query"),
    (b"PAR1", "a Parquet file: export the tickets as CSV or JSONL"),
    (b"BZh", "a bzip2 archive: unpack it, or use gzip"),
    (b"\xfd7zXZ", "an xz archive: unpack it, or use gzip"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive: unpack it, or use gzip"),
    (GZIP, "compressed twice: unpack it once"),
)
_BYTE_ORDER_MARKS = (
    (b"\xff\xfe\x00\x00", "utf-32"),  # before UTF-16, whose mark it begins with
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1a\x1b"))

# Bytes that are not UTF-8 arrive as lone surrogates ("surrogateescape") and are read as Windows-1252 one by one, so
# that a broken character does not garble the good ones beside it. The five bytes that it leaves open are Latin-1.
_ESCAPED = re.compile("[\udc80-\udcff]")
_WINDOWS_1252 = {
    0xDC00 + byte: bytes([byte]).decode("cp1252", "ignore") or bytes([byte]).decode("latin-1")
    for byte in range(0x80, 0x100)
}


class LineTooLong(ValueError):
    """One line is longer than any row can be; it was skipped to its end, and reading can go on behind it."""


class TextLines:
    """The lines of a file with their line ends, one at a time.

    `number` is that of the line given last, from 1; `fallback_lines` counts those with bytes that are not UTF-8;
    `beginning` shows the first characters without moving on.
    Iterating raises LineTooLong, and UserError when the file turns out to be damaged.
    """

    def __init__(self, binary: BinaryIO, path: Path, encoding: str, sample: bytes) -> None:
        errors = "surrogateescape" if encoding == "utf-8-sig" else "replace"
        decoded = sample.decode(encoding, "replace")
        first_end = re.search(r"\r\n?|\n", decoded)
        self._newline = "\r" if first_end and first_end[0] == "\r" else "\n"  # an old Mac's, or everyone else's
        self._text = io.TextIOWrapper(binary, encoding=encoding, errors=errors, newline=self._newline)
        self._path = path
        self.encoding = encoding
        self.beginning = decoded.lstrip("\ufeff \t\r\n")[:100]
        self.number = 0
        self.fallback_lines = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._read()
        if not line:
            raise StopIteration
        self.number += 1
        if len(line) >= LINE_LIMIT_CHARACTERS and line[-1] != self._newline:
            while line and line[-1] != self._newline:
                line = self._read()
            raise LineTooLong(f"the line is longer than {LINE_LIMIT_CHARACTERS:,} characters")
        return line if line.isascii() else self._mended(line)

    def piece(self, characters: int) -> str:
        """The next characters whatever the lines in them, empty at the end; `number` grows by their line ends."""
        piece = self._read(characters)
        self.number += piece.count(self._newline)
        return self._mended(piece)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of the encoding."""
        if self.encoding != "utf-8-sig":
            return (f"read as {self.encoding.upper()}",)
        if self.fallback_lines:
            return (f"lines that are not UTF-8, read as Windows-1252: {self.fallback_lines:,}",)
        return ()

    def close(self) -> None:
        """Close the file."""
        self._text.close()

    def _mended(self, text: str) -> str:
        if not text.isascii() and _ESCAPED.search(text):
            self.fallback_lines += 1
            return text.translate(_WINDOWS_1252)
        return text

    def _read(self, characters: int | None = None) -> str:
        """A line, or so many characters."""
        try:
            return self._text.readline(LINE_LIMIT_CHARACTERS) if characters is None else self._text.read(characters)
        except EOFError as error:
            raise UserError(
                f"{self._path} is cut off after line {self.number:,} (gzip without its end): export or copy it again"
            ) from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise UserError(
                f"{self._path} is damaged after line {self.number:,} (gzip: {error}): export or copy it again"
            ) from error
        except OSError as error:
            raise UserError(f"cannot read {self._path} after line {self.number:,}: {error.strerror}") from error


@contextmanager
def open_lines(path: Path) -> Iterator[TextLines]:
    """The lines of `path`. Raises UserError, one line, when it cannot be read or is no text."""
    with _open_binary(path) as binary:
        sample = _sample(path, binary)
        lines = TextLines(binary, path, _encoding(path, sample), sample)
        try:
            yield lines
        finally:
            lines.close()


@contextmanager
def _open_binary(path: Path) -> Iterator[BinaryIO]:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UserError(f"{path} is {'a directory' if path.is_dir() else 'not a regular file'}: name one file")
        plain = path.open("rb")
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist: has the export run, and is the path right?") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    with plain:
        if plain.peek(2)[:2] == GZIP:
            with gzip.GzipFile(fileobj=plain) as unpacked:
                yield cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, unpacked), SAMPLE_BYTES))
        else:
            yield plain


def _sample(path: Path, binary: BinaryIO) -> bytes:
    try:
        sample = binary.read(SAMPLE_BYTES)
        binary.seek(0)
    except EOFError as error:
        raise UserError(f"{path} is cut off (gzip without its end): export or copy it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is damaged (gzip: {error}): export or copy it again") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if not sample.strip(b"\xef\xbb\xbf \t\r\n\0"):
        raise UserError(f"{path} is empty: has the export finished?")
    return sample


def _encoding(path: Path, sample: bytes) -> str:
    """The encoding to read with. Raises UserError when the sample is no text."""
    for signature, what in _SIGNATURES:
        if sample.startswith(signature):
            raise UserError(f"{path} is {what}")
    for mark, encoding in _BYTE_ORDER_MARKS:
        if sample.startswith(mark):
            return encoding
    beginning = sample.lstrip(b"\xef\xbb\xbf \t\r\n")[:100].lower()
    if beginning.startswith((b"<!doctype html", b"<html", b"<?xml")):
        raise UserError(f"{path} is a web page or XML, not CSV or JSONL: did the export ask for a login?")
    even, odd = sample[0:100:2].count(0), sample[1:100:2].count(0)
    if max(even, odd) > 0.2 * len(sample[:100]) and min(even, odd) == 0:
        return "utf-16-le" if odd else "utf-16-be"
    first_line = re.split(rb"[\r\n]", sample.lstrip(), maxsplit=1)[0]
    if _controls(first_line) or _controls(sample) > max(MANY_CONTROLS, len(sample) // 20):
        raise UserError(f"{path} is binary, not text: export the tickets as CSV or JSONL")
    return "utf-8-sig"


def _controls(data: bytes) -> int:
    return len(data) - len(data.translate(None, _CONTROLS))
