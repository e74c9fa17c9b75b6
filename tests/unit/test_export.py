"""Results as files and streams: complete or untouched, safe to open, always the same columns."""

import csv
import io
import json
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobs.export import COLUMNS, Format, format_of, write_results
from jobs.states import JobState
from jobs.store import results
from tests.support.intake import refused


@dataclass(frozen=True, slots=True)
class Row:
    custom_id: str = "T-1"
    state: JobState = JobState.SUCCEEDED
    label: str | None = "billing"
    error: str | None = None
    truncated: bool = False
    reused: bool = True
    model: str | None = "qwen"
    prompt_tokens: int | None = 120
    completion_tokens: int | None = 6
    latency_seconds: float | None = 0.25
    attempts: int = 1
    yields: int = 0
    finished_at: datetime | None = datetime(2026, 11, 30, 2, 3, 4, 567_891, tzinfo=UTC)


PENDING = Row(
    custom_id="T-2", state=JobState.PENDING, label=None, model=None, prompt_tokens=None, completion_tokens=None,
    latency_seconds=None, finished_at=None,
)  # fmt: skip


def written(format: Format, *rows: Row) -> str:
    out = io.StringIO(newline="")
    assert write_results(rows, format, out) == len(rows)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("x.csv", "csv"), ("x.jsonl", "jsonl"), ("x.JSONL", "jsonl"), ("x", "csv"), ("/dev/full", "csv")],
)
def test_a_file_is_what_its_ending_says(name: str, expected: str) -> None:
    assert format_of(Path(name)) == expected


@pytest.mark.parametrize("name", ["labels.xlsx", "labels.json", "labels.csv.gz", "labels.parquet"])
def test_an_ending_that_is_no_format_of_results_is_refused(name: str) -> None:
    with refused(f"{name}: results are written as .csv or .jsonl, not as .", "--format"):
        format_of(Path(name))


def test_csv() -> None:
    assert written("csv", Row(), PENDING).split("\n") == [
        "custom_id,state,label,error,truncated,reused,model,prompt_tokens,completion_tokens,latency_seconds,attempts,"
        "yields,finished_at",
        "T-1,succeeded,billing,,false,true,qwen,120,6,0.25,1,0,2026-11-30T02:03:04.567Z",
        "T-2,pending,,,false,true,,,,,1,0,",
        "",
    ]


def test_jsonl() -> None:
    first, second = (json.loads(line) for line in written("jsonl", Row(), PENDING).splitlines())
    assert list(first) == list(COLUMNS)
    assert first == {
        "custom_id": "T-1", "state": "succeeded", "label": "billing", "error": None, "truncated": False, "reused": True,
        "model": "qwen", "prompt_tokens": 120, "completion_tokens": 6, "latency_seconds": 0.25, "attempts": 1,
        "yields": 0, "finished_at": "2026-11-30T02:03:04.567Z",
    }  # fmt: skip
    assert second["finished_at"] is None
    assert second["label"] is None


def test_no_rows() -> None:
    assert written("csv").count("\n") == 1
    assert written("jsonl") == ""


def test_the_columns_are_those_of_the_stores_rows() -> None:
    assert tuple(field.name for field in fields(results.ResultRow)) == COLUMNS


def test_instants_are_given_in_utc() -> None:
    elsewhere = datetime(2026, 11, 30, 3, 3, 4, tzinfo=timezone(timedelta(hours=1)))
    assert "2026-11-30T02:03:04.000Z" in written("csv", Row(finished_at=elsewhere))


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_a_spreadsheet_runs_no_text_of_ours(begin: str) -> None:
    row = Row(custom_id=f"{begin}1", label=f"{begin}2", error=f"{begin}HYPERLINK()", model=f"{begin}m")
    cells = next(csv.DictReader(io.StringIO(written("csv", row), newline="")))
    for name in ("custom_id", "label", "error", "model"):
        assert cells[name] == "'" + getattr(row, name)
    assert json.loads(written("jsonl", row))["custom_id"] == f"{begin}1"


@pytest.mark.parametrize("begin", ["\uff1d", "\uff0b", "\uff0d", "\uff20"])
def test_wide_signs_are_signs(begin: str) -> None:
    assert f",'{begin}1," in written("csv", Row(label=f"{begin}1"))


@pytest.mark.parametrize(
    ("error", "cell"),
    [
        ("no;=HYPERLINK()", "no;'=HYPERLINK()"),
        ("no;  +1\t@x", "no;'  +1\t'@x"),
        ("a; b; 5 - 3 = 2", "a; b; 5 - 3 = 2"),
        ("two\n=lines", "two\n'=lines"),
        ('a quote;"=1+1;', "a quote;'\"=1+1;"),
    ],
)
def test_nor_where_it_splits_rows_at_another_separator(error: str, cell: str) -> None:
    row = next(csv.DictReader(io.StringIO(written("csv", Row(error=error)), newline="")))
    assert row["error"] == cell


def test_numbers_stay_numbers() -> None:
    assert ",-1," in written("csv", Row(prompt_tokens=-1))


HARMLESS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=";\t\r\n"))


@example("a\nb", 'c\r\nd " e')
@given(HARMLESS, HARMLESS)
def test_any_text_comes_back_from_both_formats(custom_id: str, error: str) -> None:
    row = Row(custom_id="T" + custom_id, error="e" + error)
    cells = next(csv.DictReader(io.StringIO(written("csv", row), newline="")))
    assert (cells["custom_id"], cells["error"]) == (row.custom_id, row.error)
    values = json.loads(written("jsonl", row))
    assert (values["custom_id"], values["error"]) == (row.custom_id, row.error)


class TestFile:
    def test_is_written_with_the_usual_permissions(self, tmp_path: Path) -> None:
        path = tmp_path / "results.csv"
        mask = os.umask(0o027)
        try:
            assert write_results([Row(label="Grüße")], "csv", path) == 1
        finally:
            os.umask(mask)
        assert "Grüße" in path.read_text(encoding="utf-8")
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert os.listdir(tmp_path) == ["results.csv"]

    def test_is_the_old_one_until_the_new_one_is_complete(self, tmp_path: Path) -> None:
        path = tmp_path / "results.csv"
        path.write_text("old")

        def rows() -> Iterator[Row]:
            yield Row()
            assert path.read_text() == "old"
            yield PENDING

        assert write_results(rows(), "csv", path) == 2
        assert path.read_text().count("\n") == 3

    @pytest.mark.parametrize("failure", [RuntimeError("database gone"), KeyboardInterrupt()])
    def test_stays_the_old_one_when_the_rows_break_off(self, tmp_path: Path, failure: BaseException) -> None:
        path = tmp_path / "results.csv"
        path.write_text("old")

        def rows() -> Iterator[Row]:
            yield Row()
            raise failure

        with pytest.raises(type(failure)):
            write_results(rows(), "csv", path)
        assert path.read_text() == "old"
        assert os.listdir(tmp_path) == ["results.csv"]

    def test_stays_the_old_one_when_the_disk_is_full(self, tmp_path: Path) -> None:
        path = tmp_path / "results.csv"
        path.write_text("old")
        with at_most_bytes(100_000), refused("cannot write the results to", "results.csv: File too large", STILL_THERE):
            write_results((replace(Row(), custom_id=str(number)) for number in range(100_000)), "jsonl", path)
        assert path.read_text() == "old"
        assert os.listdir(tmp_path) == ["results.csv"]

    def test_is_reached_through_a_link_that_stays(self, tmp_path: Path) -> None:
        (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
        write_results([Row()], "csv", tmp_path / "link.csv")
        assert (tmp_path / "link.csv").is_symlink()
        assert (tmp_path / "real.csv").read_text().count("\n") == 2

    def test_that_cannot_be_made_is_one_line(self, tmp_path: Path) -> None:
        with refused("cannot write the results to", "No such file or directory", STILL_THERE):
            write_results([Row()], "csv", tmp_path / "missing" / "results.csv")
        with refused("Is a directory", STILL_THERE):
            write_results([Row()], "csv", tmp_path)

    def test_that_is_a_device_is_written_to_not_replaced(self) -> None:
        assert write_results([Row()], "csv", Path("/dev/null")) == 1
        assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
        with refused("/dev/full: No space left on device", STILL_THERE):
            write_results([Row()], "csv", Path("/dev/full"))


class TestStream:
    def test_that_is_full_is_one_line(self) -> None:
        with full_device() as stream, refused("the output: No space left", STILL_THERE):
            write_results([Row()], "csv", stream)

    def test_whose_reader_has_gone_says_so_to_the_caller(self) -> None:
        reading, writing = os.pipe()
        os.close(reading)
        stream = os.fdopen(writing, "w", newline="")
        with pytest.raises(BrokenPipeError):
            write_results([Row()], "csv", stream)
        with pytest.raises(BrokenPipeError):
            stream.close()


STILL_THERE = "they are all still in the database: make room or name another file, and run results again"


@contextmanager
def at_most_bytes(size: int) -> Iterator[None]:
    """No file may grow over `size`: what a full disk looks like to one process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def full_device() -> Iterator[io.TextIOWrapper]:
    stream = open("/dev/full", "w", newline="")  # noqa: SIM115 - closing it fails, too
    try:
        yield stream
    finally:
        with pytest.raises(OSError, match="No space left"):
            stream.close()
