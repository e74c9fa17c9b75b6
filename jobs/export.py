"""Results for people and programs: CSV or JSONL, one row per ticket, always the same columns in the same order."""

import csv
import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol, TextIO, get_args

from tickets_batch.errors import UsageError, UserError
from tickets_batch.settings.sink import ResultField

Format = Literal["csv", "jsonl"]
FORMATS: tuple[Format, ...] = get_args(Format)

COLUMNS = tuple(name for name in get_args(ResultField) if name != "batch_id")  # a file holds one batch
_SIGNS = r"=+@\uff1d\uff0b\uff0d\uff20\-"  # the wide ones too, which East Asian spreadsheets read like the others
# Where a cell would begin that a spreadsheet runs: ours, or one that it makes where it splits at semicolons or tabs, to
# which our quotes are none, so that lines end in them and a quote behind a separator opens and closes one.
_RUN_BY_SPREADSHEETS = re.compile(rf"^(?=[{_SIGNS}\t\r\n])|(?<=[;\t\r\n])(?=[\s\"]*[{_SIGNS}])")


class ResultRow(Protocol):
    """What a result must have, in the order of COLUMNS."""

    @property
    def custom_id(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def label(self) -> str | None: ...
    @property
    def error(self) -> str | None: ...
    @property
    def truncated(self) -> bool: ...
    @property
    def reused(self) -> bool: ...
    @property
    def model(self) -> str | None: ...
    @property
    def prompt_tokens(self) -> int | None: ...
    @property
    def completion_tokens(self) -> int | None: ...
    @property
    def latency_seconds(self) -> float | None: ...
    @property
    def attempts(self) -> int: ...
    @property
    def yields(self) -> int: ...
    @property
    def finished_at(self) -> datetime | None: ...


def format_of(path: Path) -> Format:
    """The format that the file's ending asks for; CSV where it has none. Raises UsageError for any other ending."""
    ending = path.suffix.lower().removeprefix(".")
    for known in FORMATS:
        if ending in ("", known):
            return known
    raise UsageError(
        f"{path}: results are written as {' or '.join(f'.{known}' for known in FORMATS)}, not as {path.suffix}: "
        "name it so, or say with --format which of these is meant"
    )


def write_results(rows: Iterable[ResultRow], format: Format, out: Path | TextIO) -> int:
    """Write the rows and return how many there were.

    A path is written whole or not at all: readers see the old file until the new one is complete. Raises UserError, one
    line, when it cannot be written; a stream whose reader has gone raises BrokenPipeError.
    """
    write = _write_csv if format == "csv" else _write_jsonl
    if not isinstance(out, Path):
        with _failures_explained("the output"):
            count = write(rows, out)
            out.flush()
            return count
    with _failures_explained(str(out)), _complete_or_absent(out) as stream:
        return write(rows, stream)


def _write_csv(rows: Iterable[ResultRow], stream: TextIO) -> int:
    writer = csv.writer(_UnixLines(stream), lineterminator="\r\n")
    writer.writerow(COLUMNS)
    count = 0
    for row in rows:
        writer.writerow([_cell(getattr(row, name)) for name in COLUMNS])
        count += 1
    return count


class _UnixLines:
    """Rows end in `\\n`, but the writer must believe in `\\r\\n`: it quotes only what is in its own line end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, row: str) -> None:
        self._stream.write(row.removesuffix("\r\n") + "\n")


def _write_jsonl(rows: Iterable[ResultRow], stream: TextIO) -> int:
    count = 0
    for row in rows:
        values = {
            name: instant_in_words(value) if isinstance(value := getattr(row, name), datetime) else value
            for name in COLUMNS
        }
        stream.write(json.dumps(values, ensure_ascii=False) + "\n")
        count += 1
    return count


def _cell(value: object) -> object:
    """A cell that a spreadsheet opens as what it is: what it would run gets an apostrophe in front."""
    if isinstance(value, str):
        return _RUN_BY_SPREADSHEETS.sub("'", value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return instant_in_words(value) if isinstance(value, datetime) else value


def instant_in_words(instant: datetime) -> str:
    """The instant in UTC, to the millisecond, as in `2026-11-30T02:03:04.567Z`."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@contextmanager
def _complete_or_absent(path: Path) -> Iterator[TextIO]:
    """A stream into a new file beside `path` that takes its place at the end; into `path` itself if that is no file."""
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8", newline="") as stream:  # a device or a pipe cannot be replaced
            yield stream
        return
    target = Path(os.path.realpath(path))  # through a link, so that the link stays
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with beside.open("x", encoding="utf-8", newline="") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextmanager
def _failures_explained(where: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UserError(
            f"cannot write the results to {where}: {error.strerror}; they are all still in the database:"
            " make room or name another file, and run results again"
        ) from error
