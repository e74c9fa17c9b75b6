"""CSV as people export it."""

import csv
import gzip
import io
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from jobs.intake import decode
from jobs.intake.source import open_source
from jobs.ticket import Rejection, Ticket
from tests.support.intake import AT_NOON, DAY, read_file, refused
from tests.support.shared_data import shared_data
from tickets_batch.settings import Columns
from tickets_batch.settings import Source as SourceSettings

HEADER = "id,created_at,subject,body\n"
NOON = "2026-11-30 12:00:00"


def test_a_plain_file(tmp_path: Path) -> None:
    seen = read_file(tmp_path, HEADER + f"T-1,{NOON},Hello,My parcel is late\n")
    assert seen.tickets == [Ticket("T-1", "Hello", "My parcel is late", AT_NOON, 0, 2)]
    assert seen.rejections == []
    assert seen.notes == ()
    assert seen.outside_day == 0


def test_columns_are_found_by_the_names_that_the_settings_give(tmp_path: Path) -> None:
    columns = Columns(id="Ticket ID", subject="Subject", body="Description", created_at="Created at", priority="Prio")
    content = f"Prio,Description,Created at,Extra,Ticket ID,Subject\nhigh,Text,{NOON},x,7,Words\n"
    assert read_file(tmp_path, content, columns=columns).tickets == [Ticket("7", "Words", "Text", AT_NOON, 1, 2)]


def test_names_differ_in_case_and_white_space_at_most(tmp_path: Path) -> None:
    assert read_file(tmp_path, f" ID ,Created_At,BODY\n1,{NOON},x\n").bodies == {"1": "x"}


def test_an_exact_name_wins_over_one_in_another_case(tmp_path: Path) -> None:
    assert read_file(tmp_path, f"ID,id,created_at,body\nwrong,right,{NOON},x\n").bodies == {"right": "x"}


@pytest.mark.parametrize(("separator", "name"), [(";", "semicolon"), ("\t", "tab"), ("|", "pipe")])
def test_other_separators_are_found_and_noted(tmp_path: Path, separator: str, name: str) -> None:
    lines = [["id", "created_at", "subject", "body"], ["1", NOON, "a, b, c, d", "e, f"]]
    seen = read_file(tmp_path, "\n".join(separator.join(cells) for cells in lines))
    assert [(ticket.subject, ticket.body) for ticket in seen.tickets] == [("a, b, c, d", "e, f")]
    assert seen.notes == (f"the separator is a {name}",)


def test_the_header_decides_on_the_separator_whatever_it_contains(tmp_path: Path) -> None:
    content = f'"id, or key; as given";body;created_at;"x,y,z,a,b,c"\n1;text;{NOON};\n'
    seen = read_file(tmp_path, content, columns=Columns(id="id, or key; as given"))
    assert seen.bodies == {"1": "text"}


def test_excels_separator_line_is_obeyed(tmp_path: Path) -> None:
    seen = read_file(tmp_path, f"sep=;\r\nid;created_at;body\r\n1;{NOON};x\r\n")
    assert seen.tickets == [Ticket("1", "", "x", AT_NOON, 0, 3)]


def test_byte_order_mark_crlf_and_bodies_over_many_lines(tmp_path: Path) -> None:
    content = f'\ufeff"id","created_at","body"\r\n1,{NOON},"one\r\n\r\ntwo, ""three"""\r\n2,{NOON},four\r\n'
    seen = read_file(tmp_path, content)
    assert seen.bodies == {"1": 'one\n\ntwo, "three"', "2": "four"}
    assert [ticket.line for ticket in seen.tickets] == [2, 5]


def test_lines_that_end_in_cr_alone(tmp_path: Path) -> None:
    assert read_file(tmp_path, f"id,created_at,body\r1,{NOON},x\r2,{NOON},y\r").bodies == {"1": "x", "2": "y"}


def test_no_newline_at_the_end_and_blank_lines_anywhere(tmp_path: Path) -> None:
    seen = read_file(tmp_path, f"\n\n{HEADER}\n1,{NOON},,x\n\n,,,\n2,{NOON},,y")
    assert seen.bodies == {"1": "x", "2": "y"}
    assert seen.rejections == []
    assert [ticket.line for ticket in seen.tickets] == [5, 8]


def test_a_space_behind_the_separator_does_not_hide_a_quote(tmp_path: Path) -> None:
    assert read_file(tmp_path, f'id, created_at, body\n1, {NOON}, "x, y"\n').bodies == {"1": "x, y"}


def test_a_header_over_two_lines(tmp_path: Path) -> None:
    seen = read_file(tmp_path, f'id,created_at,body,"two\nlines"\n1,{NOON},x,y\n')
    assert seen.tickets == [Ticket("1", "", "x", AT_NOON, 0, 3)]


def test_cells_beyond_the_usual_limit(tmp_path: Path) -> None:
    long = "word " * 100_000
    assert read_file(tmp_path, HEADER + f'1,{NOON},,"{long}"\n').bodies == {"1": long.strip()}


def test_an_enormous_body_is_cut_and_noted(tmp_path: Path) -> None:
    seen = read_file(tmp_path, HEADER + f"1,{NOON},,{'x' * 1_000_001}\n2,{NOON},,y\n")
    assert {key: len(body) for key, body in seen.bodies.items()} == {"1": 1_000_000, "2": 1}
    assert seen.notes == ("texts cut at 1,000,000 characters: 1",)


def test_a_repeated_column_gives_its_first_text(tmp_path: Path) -> None:
    content = f"id,created_at,subject,Comment,Comment,Comment\n1,{NOON},,,second,third\n2,{NOON},,first,,\n"
    seen = read_file(tmp_path, content, columns=Columns(body="Comment"))
    assert seen.bodies == {"1": "second", "2": "first"}
    assert seen.notes == ('the column "Comment" is there 3 times: the first that is not empty counts',)


def test_html_bodies_become_text(tmp_path: Path) -> None:
    seen = read_file(tmp_path, HEADER + f'1,{NOON},5 < 6,"<p>Hello<br>you &amp; me</p><script>x()</script>"\n')
    assert seen.tickets[0].subject == "5 < 6"
    assert seen.tickets[0].body == "Hello\nyou & me"
    assert seen.notes == ("HTML, of which only the text was kept: 1",)


class TestRowsThatCannotBeUsed:
    def test_are_listed_by_line_and_stop_no_other(self, tmp_path: Path) -> None:
        content = HEADER + (
            f"1,{NOON},,x\n"
            f",{NOON},a,b\n"
            f"3,{NOON},,\n"
            "4,soon,a,b\n"
            "5,01/02/2026,a,b\n"
            "6,,a,b\n"
            f"7,{NOON}\n"
            f"8,{NOON},a,b,c\n"
            f"{'9' * 501},{NOON},a,b\n"
            f"10,{NOON},,y\n"
        )
        seen = read_file(tmp_path, content)
        assert seen.bodies == {"1": "x", "10": "y"}
        assert seen.reasons == {
            3: "the id is empty",
            4: "subject and body are both empty",
            5: 'created_at "soon" is not a date; write for example 2026-11-30 08:15:00',
            6: 'created_at "01/02/2026" could be day/month or month/day: export dates as YYYY-MM-DD,'
            " or take every row with --all",
            7: "created_at is empty",
            8: "2 columns, but the header has 4",
            9: "5 columns, but the header has 4",
            10: "the id is longer than 500 characters",
        }
        assert [rejection.custom_id for rejection in seen.rejections][:3] == [None, "3", "4"]

    def test_no_reason_carries_what_a_terminal_obeys(self, tmp_path: Path) -> None:
        seen = read_file(tmp_path, HEADER + '1,"\x1b[2J\nsoon",a,b\n')
        assert seen.reasons == {2: 'created_at "[2J soon" is not a date; write for example 2026-11-30 08:15:00'}

    def test_their_ids_can_be_stored_too(self, tmp_path: Path) -> None:
        seen = read_file(tmp_path, HEADER + f"1\0\n2\0,{NOON},,\n{'3' * 1000},{NOON},a,b\n")
        assert [rejection.custom_id for rejection in seen.rejections] == ["1\ufffd", "2\ufffd", "3" * 500]

    def test_html_without_text_is_an_empty_body(self, tmp_path: Path) -> None:
        assert 2 in read_file(tmp_path, HEADER + f"1,{NOON},,<div><br></div>\n").reasons

    def test_an_empty_body_with_a_subject_is_usable(self, tmp_path: Path) -> None:
        assert read_file(tmp_path, HEADER + f"1,{NOON},Just this,\n").bodies == {"1": ""}

    def test_an_open_quote_swallows_no_other_row(self, tmp_path: Path) -> None:
        content = HEADER + f'1,{NOON},a,b\n2,{NOON},"open,c\n3,{NOON},d,"e"\n4,{NOON},f,g\n'
        seen = read_file(tmp_path, content)
        assert seen.bodies == {"1": "b", "3": "e", "4": "g"}
        assert list(seen.reasons) == [3]

    def test_a_file_that_ends_within_a_quote_loses_that_row_alone(self, tmp_path: Path) -> None:
        content = HEADER + f'1,{NOON},a,b\n2,{NOON},c,"cut\n3,{NOON},d,e\n4,{NOON},f,"cut'
        seen = read_file(tmp_path, content)
        assert seen.bodies == {"1": "b", "2": "cut", "3": "e"}
        assert seen.reasons == {5: "a quoted cell that begins on this line has no end"}

    def test_quotes_that_are_not_doubled_are_forgiven_on_one_line(self, tmp_path: Path) -> None:
        seen = read_file(tmp_path, HEADER + f'1,{NOON},a,"he said "hi" to me"\n2,{NOON},"x "y", z",b\n3,{NOON},c,d\n')
        assert seen.bodies == {"1": 'he said hi" to me"', "3": "d"}
        assert seen.reasons == {3: "its quotes do not match: a quote inside a quoted cell must be doubled"}

    def test_a_line_beyond_all_bounds_is_skipped(self, tmp_path: Path) -> None:
        huge = "x" * (decode.LINE_LIMIT_CHARACTERS + 10)
        seen = read_file(tmp_path, HEADER + f"1,{NOON},,a\n2,{NOON},,{huge}\n3,{NOON},,c\n")
        assert seen.bodies == {"1": "a", "3": "c"}
        assert seen.reasons == {3: "the line is longer than 16,777,216 characters"}

    def test_a_line_beyond_all_bounds_within_an_open_quote(self, tmp_path: Path) -> None:
        huge = "x" * (decode.LINE_LIMIT_CHARACTERS + 10)
        seen = read_file(tmp_path, HEADER + f'1,{NOON},,"a\n2,{NOON},,b\n3,{NOON},,{huge}\n4,{NOON},,d\n')
        assert seen.bodies == {"2": "b", "4": "d"}
        assert sorted(seen.reasons) == [2, 4]


def test_trailing_separators_and_short_rows_are_no_fault(tmp_path: Path) -> None:
    seen = read_file(tmp_path, f"id,created_at,subject,body,tags,team\n1,{NOON},,x,a,b,,,\n2,{NOON},,y\n")
    assert seen.bodies == {"1": "x", "2": "y"}
    assert seen.notes == ("rows that end before the header does, behind every column that is used: 1",)


def test_rows_of_other_days_are_counted_and_not_faults(tmp_path: Path) -> None:
    content = HEADER + (
        "1,2026-11-29 23:59:59,,x\n2,2026-11-30 00:00:00,,x\n3,2026-11-30 23:59:59.999,,x\n"
        "4,2026-12-01,,x\n,2026-11-01,,\n5,2026-11-29T23:00:00Z,,x\n"
    )
    seen = read_file(tmp_path, content)
    assert list(seen.bodies) == ["2", "3", "5"]
    assert seen.outside_day == 3
    assert seen.rejections == []


def test_every_row_is_taken_whatever_its_date(tmp_path: Path) -> None:
    content = HEADER + "1,2020-01-01,,x\n2,01/02/2026,,y\n3,,,z\n"
    seen = read_file(tmp_path, content, every_row=True)
    assert [(ticket.custom_id, ticket.created_at) for ticket in seen.tickets] == [
        ("1", datetime(2019, 12, 31, 23, tzinfo=UTC)),
        ("2", None),
        ("3", None),
    ]
    assert seen.outside_day == 0
    assert seen.notes == ("dates that cannot be read, their rows taken all the same: 2",)


def test_every_row_needs_no_dates(tmp_path: Path) -> None:
    assert read_file(tmp_path, "id,body\n1,x\n", every_row=True).tickets == [Ticket("1", "", "x", None, 0, 2)]


class TestMissingColumns:
    def test_one_line_names_them_the_nearest_and_what_there_is(self, tmp_path: Path) -> None:
        columns = Columns(id="Ticket ID", body="Descripton", created_at="Created at")
        with refused(
            'no column "Descripton" for columns.body (nearest: "Description")',
            "its columns are: Ticket ID, Created at, Description",
            "set [source] columns",
        ):
            read_file(tmp_path, "Ticket ID,Created at,Description\n", columns=columns)

    def test_usual_names_are_proposed(self, tmp_path: Path) -> None:
        with refused('columns.id (nearest: "Key")', 'columns.body (nearest: "Description")'):
            read_file(tmp_path, "Key,Created_at,Summary,Description\n")

    def test_without_dates_the_way_out_is_all(self, tmp_path: Path) -> None:
        with refused('no column "created_at" for columns.created_at', "or take every row whatever its date with --all"):
            read_file(tmp_path, "id,subject,body\n1,x,y\n")

    def test_a_subject_must_be_there_only_when_it_is_named(self, tmp_path: Path) -> None:
        assert read_file(tmp_path, f"id,created_at,body\n1,{NOON},x\n").bodies == {"1": "x"}
        with refused('no column "Betreff" for columns.subject'):
            read_file(tmp_path, "id,created_at,body\n", columns=Columns(subject="Betreff"))

    def test_a_priority_that_is_named_must_be_there(self, tmp_path: Path) -> None:
        with refused('no column "Prio" for columns.priority'):
            read_file(tmp_path, "id,created_at,body\n", columns=Columns(priority="Prio"))

    def test_a_file_with_hundreds_of_columns_stays_one_readable_line(self, tmp_path: Path) -> None:
        with refused("column29 and 270 more"):
            read_file(tmp_path, ",".join(f"column{number}" for number in range(300)) + "\n")


def test_priorities_are_numbers_or_the_usual_words(tmp_path: Path) -> None:
    given = ["3", "-1", "2.0", "Urgent", "low", "", "P1", "99999999999", "9999999999"]
    content = "id,created_at,subject,body,priority\n" + "".join(
        f"{number},{NOON},,x,{value}\n" for number, value in enumerate(given)
    )
    seen = read_file(tmp_path, content, columns=Columns(priority="priority"))
    assert [ticket.priority for ticket in seen.tickets] == [3, -1, 2, 2, -1, 0, 0, 0, 2**31 - 1]
    assert seen.notes == ("priorities not understood, taken as normal: 2",)


def test_what_no_database_stores_is_replaced_and_counted(tmp_path: Path) -> None:
    seen = read_file(tmp_path, HEADER + f"1\0,{NOON},,a\0b\n2,{NOON},,c\n")
    assert [(ticket.custom_id, ticket.body) for ticket in seen.tickets] == [("1\ufffd", "a\ufffdb"), ("2", "c")]
    assert seen.notes == ("texts with NUL or half characters, which were replaced: 1",)


NAMES = ("id", "created_at", "subject", "body")
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    rows=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=8),
    separator=st.sampled_from(",;\t|"),
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"]),
    zipped=st.booleans(),
)
def test_what_any_program_writes_is_read_back(
    tmp_path: Path,
    rows: list[tuple[str, str]],
    separator: str,
    line_end: str,
    quoting: int,
    encoding: str,
    zipped: bool,
) -> None:
    # Python's writer quotes a line end in a cell only where it is part of its own: what it writes then is no CSV.
    breaks = {char for row in rows for text in row for char in text} & set("\r\n")
    assume(quoting == csv.QUOTE_ALL or breaks <= set(line_end))
    written = io.StringIO(newline="")
    writer = csv.writer(written, delimiter=separator, lineterminator=line_end, quoting=quoting)  # type: ignore[arg-type]
    writer.writerow(NAMES)
    for number, (subject, body) in enumerate(rows):
        writer.writerow([f"T-{number}", NOON, "<" + subject, "<" + body])
    content = written.getvalue().encode(encoding)
    seen = read_file(tmp_path, gzip.compress(content, mtime=0) if zipped else content)
    assert seen.rejections == []
    # Python's writer leaves the newlines of other systems unquoted: these come back as spaces.
    same = clean if quoting == csv.QUOTE_ALL else words
    assert [(same(ticket.subject), same(ticket.body)) for ticket in seen.tickets] == [
        (same("<" + subject), same("<" + body)) for subject, body in rows
    ]


def words(text: str) -> str:
    return " ".join(text.split())


def clean(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=300) | st.text('",\n\r;ab', max_size=100).map(str.encode))
def test_any_rest_of_a_file_gives_tickets_and_rejections_only(tmp_path: Path, rest: bytes) -> None:
    seen = read_file(tmp_path, HEADER.encode() + f"T-1,{NOON},,first\n".encode() + rest)
    assert seen.tickets[0].custom_id == "T-1" or seen.rejections
    for ticket in seen.tickets:
        assert ticket.custom_id
        ticket.body.encode()
    for rejection in seen.rejections:
        assert "\n" not in rejection.reason


def test_a_large_file_is_streamed_in_constant_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.csv.gz"
    row = f'T-%d,{NOON},Subject,"{"word " * 2_000}"\n'
    block = "".join(row % number for number in range(100)).encode()
    with gzip.open(path, "wb", compresslevel=1) as out:
        out.write(HEADER.encode())
        for _ in range(50):
            out.write(block)  # 50 MB in all
    source = open_source(SourceSettings(path=str(path)), DAY)
    tracemalloc.start()
    try:
        assert sum(isinstance(ticket, Ticket) for ticket in source) == 5_000
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2_000_000


def test_real_queries_come_through_word_for_word(tmp_path: Path) -> None:
    with shared_data("banking77/test.csv").open(encoding="utf-8", newline="") as original:
        queries = [row["text"] for row in csv.DictReader(original)]
    path = tmp_path / "queries.csv"
    with path.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["number", "text"])
        writer.writerows(enumerate(queries))
    settings = SourceSettings(path=str(path), columns=Columns(id="number", body="text"))
    rows = list(open_source(settings, DAY, every_row=True))
    assert not [row for row in rows if isinstance(row, Rejection)]
    assert [row.body for row in rows if isinstance(row, Ticket)] == [clean(query) for query in queries]
    assert len(rows) == 3_080
