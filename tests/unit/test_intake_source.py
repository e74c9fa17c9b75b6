"""Files whatever their encoding and packing, files that are none, and what identifies a source."""

import gzip
import os
import zipfile
from datetime import date
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.days import day_of
from jobs.intake.decode import LINE_LIMIT_CHARACTERS
from jobs.intake.source import open_source
from jobs.ticket import Ticket
from tests.support.intake import BERLIN, DAY, read, read_file, refused
from tickets_batch.errors import UserError
from tickets_batch.settings import Source as SourceSettings

NOON = "2026-11-30 12:00:00"
CSV = f"id,created_at,subject,body\n1,{NOON},s,b\n"


class TestEncodings:
    def test_windows_1252_is_read_and_noted_with_its_count(self, tmp_path: Path) -> None:
        content = "id,created_at,subject,body\n" + "".join(
            f"{n},{NOON},,{text}\n" for n, text in enumerate(["Grüße", "a", "5 € „x“"])
        )
        seen = read_file(tmp_path, content.encode("cp1252"))
        assert list(seen.bodies.values()) == ["Grüße", "a", "5 € „x“"]
        assert seen.notes == ("lines that are not UTF-8, read as Windows-1252: 2",)

    def test_one_broken_character_garbles_no_good_one(self, tmp_path: Path) -> None:
        line = f"1,{NOON},Grüße ".encode() + b"\xe4\x81" + " 你好\n".encode()
        assert read_file(tmp_path, b"id,created_at,body\n" + line).bodies == {"1": "Grüße ä\x81 你好"}

    def test_every_byte_is_read_as_something(self, tmp_path: Path) -> None:
        body = bytes(byte for byte in range(0x80, 0x100))
        seen = read_file(tmp_path, b"id,created_at,body\n1," + NOON.encode() + b"," + body + b"\n")
        assert len(seen.bodies["1"].strip()) == 0x80

    @pytest.mark.parametrize(
        ("encoding", "note"),
        [
            ("utf-16", "read as UTF-16"),
            ("utf-32", "read as UTF-32"),
            ("utf-16-le", "read as UTF-16-LE"),
            ("utf-16-be", "read as UTF-16-BE"),
        ],
    )
    def test_utf_16_and_32(self, tmp_path: Path, encoding: str, note: str) -> None:
        seen = read_file(tmp_path, CSV.replace(",b\n", ",Grüße 你好 😀\n").encode(encoding))
        assert seen.bodies == {"1": "Grüße 你好 😀"}
        assert seen.notes == (note,)


class TestGzip:
    def test_is_known_by_its_content_whatever_the_name(self, tmp_path: Path) -> None:
        assert read_file(tmp_path, gzip.compress(CSV.encode(), mtime=0), "tickets.csv.gz").bodies == {"1": "b"}
        assert read_file(tmp_path, gzip.compress(CSV.encode(), mtime=0), "tickets.csv").bodies == {"1": "b"}
        assert read_file(tmp_path, CSV, "tickets.csv.gz").bodies == {"1": "b"}

    def test_members_one_after_the_other_are_one_file(self, tmp_path: Path) -> None:
        content = gzip.compress(CSV.encode(), mtime=0) + gzip.compress(f"2,{NOON},s,c\n".encode(), mtime=0)
        assert read_file(tmp_path, content, "tickets.csv.gz").bodies == {"1": "b", "2": "c"}

    def test_cut_off_within_the_first_lines(self, tmp_path: Path) -> None:
        with refused("is cut off (gzip without its end): export or copy it again"):
            read_file(tmp_path, gzip.compress(CSV.encode(), mtime=0)[:-10], "tickets.csv.gz")

    def test_cut_off_far_behind(self, tmp_path: Path) -> None:
        rows = "".join(f"{number},{NOON},s,{os.urandom(20).hex()}\n" for number in range(20_000))
        packed = gzip.compress((CSV + rows).encode(), mtime=0)
        path = tmp_path / "tickets.csv.gz"
        path.write_bytes(packed[: len(packed) // 2])
        source = open_source(SourceSettings(path=str(path)), DAY)
        with refused("tickets.csv.gz is cut off after line "):
            read(source)

    def test_damaged(self, tmp_path: Path) -> None:
        rows = "".join(f"{number},{NOON},s,{os.urandom(20).hex()}\n" for number in range(20_000))
        packed = bytearray(gzip.compress((CSV + rows).encode(), mtime=0))
        packed[-8:-4] = b"\0\0\0\0"  # the checksum
        with refused("is damaged after line ", "(gzip: CRC check failed"):
            read_file(tmp_path, bytes(packed), "tickets.csv.gz")
        with refused("is damaged (gzip: "):
            read_file(tmp_path, b"\x1f\x8b" + b"nonsense" * 10, "tickets.csv.gz")


class TestFilesThatCannotBeUsed:
    def test_missing(self, tmp_path: Path) -> None:
        with refused("tickets-2026-11-30.csv does not exist: has the export run, and is the path right?"):
            open_source(SourceSettings(path=str(tmp_path / "tickets-{date}.csv")), DAY)

    def test_a_directory(self, tmp_path: Path) -> None:
        with refused(f"{tmp_path} is a directory: name one file"):
            open_source(SourceSettings(path=str(tmp_path)), DAY)

    def test_a_pipe_would_wait_for_ever(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "tickets.csv")
        with refused("is not a regular file: name one file"):
            open_source(SourceSettings(path=str(tmp_path / "tickets.csv")), DAY)

    @pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", b"\n\r\n  \n", b"\0\0\0", gzip.compress(b"", mtime=0)])
    def test_empty(self, tmp_path: Path, content: bytes) -> None:
        with refused("tickets.csv is empty: has the export finished?"):
            read_file(tmp_path, content)

    @pytest.mark.parametrize(
        ("content", "what"),
        [
            (b"%PDF-1.7\n", "a PDF"),
            (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Excel workbook: save it as CSV"),
            (b"SQLite format 3\0", "an SQLite database: give it as source.url"),
            (b"PAR1\x15\x04", "a Parquet file"),
            (b"BZh91AY", "a bzip2 archive: unpack it, or use gzip"),
            (b"\xfd7zXZ\0", "an xz archive"),
            (b"\x28\xb5\x2f\xfd\x04", "a zstd archive"),
            (gzip.compress(gzip.compress(CSV.encode(), mtime=0), mtime=0), "compressed twice"),
            (b"<!DOCTYPE html><html><body>Please log in</body></html>", "a web page or XML"),
            (b'<?xml version="1.0"?><tickets/>', "a web page or XML"),
            (b"\x00\x01\x02\x03\x04\x05\x06\x07" * 100, "binary, not text"),
            (b"\x7fELF\x02\x01\x01\x00", "binary, not text"),
            (CSV.encode() + bytes(range(1, 9)) * 1000, "binary, not text"),
        ],
    )
    def test_no_text(self, tmp_path: Path, content: bytes, what: str) -> None:
        with refused(f"tickets.csv is {what}"):
            read_file(tmp_path, content)

    @pytest.mark.parametrize("name", ["tickets.xlsx", "tickets.csv", "tickets.csv.gz", "tickets"])
    def test_a_workbook_whatever_its_name(self, tmp_path: Path, name: str) -> None:
        with zipfile.ZipFile(tmp_path / name, "w") as workbook:
            workbook.writestr("xl/workbook.xml", "<workbook/>")
        with refused("is an Excel workbook or a zip archive: save it as CSV (UTF-8), or unpack it"):
            open_source(SourceSettings(path=str(tmp_path / name)), DAY)

    @pytest.mark.parametrize("name", ["tickets.txt", "tickets", "tickets.gz", "tickets.csv.bak", ".csv"])
    def test_an_ending_that_does_not_say_what_it_is(self, tmp_path: Path, name: str) -> None:
        with refused("has no known ending: name it .csv, .tsv or .jsonl by what it holds (each also with .gz)"):
            read_file(tmp_path, CSV, name)

    def test_a_header_that_cannot_be_read(self, tmp_path: Path) -> None:
        with refused("its header cannot be read: a quoted cell that begins on this line has no end"):
            read_file(tmp_path, 'id,created_at,"body\n1,x,y\n')

    @pytest.mark.parametrize("content", ["sep=;\n", "sep=,"])
    def test_no_header(self, tmp_path: Path, content: str) -> None:
        with refused("tickets.csv has no header: the first line must name the columns"):
            read_file(tmp_path, content)

    def test_a_header_without_end(self, tmp_path: Path) -> None:
        with refused("its header cannot be read: the line is longer than 16,777,216 characters"):
            read_file(tmp_path, "x" * (LINE_LIMIT_CHARACTERS + 1))

    @settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
    @given(
        content=st.binary(max_size=200)
        | st.text('id,body"\r\n;\t\0{}[]:é', max_size=60).map(str.encode)
        | st.text(max_size=60).map(lambda text: text.encode("utf-16", "replace")),
        name=st.sampled_from(["tickets.csv", "tickets.jsonl"]),
    )
    def test_any_file_is_read_or_refused_in_one_line(self, tmp_path: Path, content: bytes, name: str) -> None:
        try:
            seen = read_file(tmp_path, content, name, every_row=True)
        except UserError as error:
            assert str(error).isprintable()  # noqa: PT017 - both ends are right
        else:
            assert all(ticket.custom_id for ticket in seen.tickets)

    def test_no_source_at_all(self) -> None:
        with refused("there is no source of tickets: name a file with --input, or set source.path"):
            open_source(SourceSettings(), DAY)


class TestIdentity:
    def test_of_a_configured_file_is_its_path_before_the_date(self, tmp_path: Path) -> None:
        configured = SourceSettings(path=str(tmp_path / "tickets-{date}.csv"))
        next_day = day_of(date(2026, 12, 1), BERLIN)
        for day in (DAY, next_day):
            (tmp_path / f"tickets-{day.date}.csv").write_text(CSV)
        today, tomorrow = open_source(configured, DAY), open_source(configured, next_day)
        assert today.key == tomorrow.key == f"{os.path.realpath(tmp_path)}/tickets-{{date}}.csv"
        assert today.describe() == f"{tmp_path}/tickets-2026-11-30.csv (CSV)"
        assert len(list(today)) == 1
        assert list(tomorrow) == []
        assert tomorrow.outside_day == 1

    def test_does_not_depend_on_where_the_command_runs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "tickets.csv").write_text(CSV)
        (tmp_path / "link").symlink_to(tmp_path)
        monkeypatch.chdir(tmp_path)
        keys = {
            open_source(SourceSettings(path=path), DAY).key
            for path in ("tickets.csv", "./tickets.csv", "link/tickets.csv", str(tmp_path / "tickets.csv"))
        }
        assert keys == {os.path.realpath(tmp_path / "tickets.csv")}

    def test_a_file_named_on_the_command_line_stands_over_the_settings(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text(CSV)
        (tmp_path / "b{date}.csv").write_text(CSV.replace("1,", "2,"))
        source = open_source(SourceSettings(path=str(tmp_path / "a.csv")), DAY, override_path=tmp_path / "b{date}.csv")
        assert [row.custom_id for row in source if isinstance(row, Ticket)] == ["2"]
        assert source.key == os.path.realpath(tmp_path / "b{date}.csv")

    def test_of_a_very_long_path_fits_its_column(self, tmp_path: Path) -> None:
        folder = tmp_path / ("d" * 100) / ("e" * 100)
        folder.mkdir(parents=True)
        keys = set()
        for name in ("a.csv", "b.csv"):
            (folder / name).write_text(CSV)
            keys.add(open_source(SourceSettings(path=str(folder / name)), DAY).key)
        assert len(keys) == 2
        assert all(len(key) <= 128 for key in keys)


def test_a_source_can_be_read_again_and_counts_anew(tmp_path: Path) -> None:
    path = tmp_path / "tickets.csv"
    path.write_text(CSV + "2,2020-01-01,s,c\n3,soon,s,c\n4," + NOON + ",s,<p>x</p>\n")
    source = open_source(SourceSettings(path=str(path)), DAY)
    first, second = read(source), read(source)
    assert first == second
    assert (len(first.tickets), len(first.rejections), first.outside_day) == (2, 1, 1)
    assert first.notes == ("HTML, of which only the text was kept: 1",)


def test_the_zone_of_the_day_is_that_of_the_dates(tmp_path: Path) -> None:
    path = tmp_path / "tickets.csv"
    path.write_text(
        "id,created_at,body\n1,2026-03-29 00:30,skipped by the clocks\n2,2026-03-29 23:59,x\n3,2026-03-30 00:00,x\n"
    )
    beirut = day_of(date(2026, 3, 29), ZoneInfo("Asia/Beirut"))
    assert list(read(open_source(SourceSettings(path=str(path)), beirut)).bodies) == ["1", "2"]
