"""The exports of Zendesk, Freshdesk and Jira as people have them: no column needs a name of its own."""

import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from jobs.intake import json_rows
from jobs.intake.source import open_source
from tests.support.intake import AT_NOON, DAY, Read, read, read_file, refused
from tickets_batch.errors import UserError
from tickets_batch.settings import Columns, Urgent
from tickets_batch.settings import Source as SourceSettings


def zendesk(number: int = 1, **more: Any) -> dict[str, Any]:
    """A ticket as the interface of Zendesk gives it."""
    return {
        "url": f"https://shop.example/api/v2/tickets/{number}.json",
        "id": number,
        "via": {"channel": "web", "source": {"from": {}, "to": {}, "rel": None}},
        "created_at": "2026-11-30T11:00:00Z",
        "updated_at": "2026-11-30T11:00:00Z",
        "subject": "My parcel",
        "raw_subject": "My parcel",
        "description": "Where is it?\n\nThanks",
        "priority": None,
        "status": "open",
        "tags": ["parcel", "vip"],
        "custom_fields": [{"id": 27642, "value": "745"}, {"id": 27648, "value": None}],
        **more,
    }


def freshdesk(number: int = 1, **more: Any) -> dict[str, Any]:
    """A ticket as the interface of Freshdesk gives it, asked for with its description."""
    return {
        "id": number,
        "subject": "My parcel",
        "description": "<div>Where <b>is</b> it?</div><div>Thanks &amp; bye</div>",
        "description_text": "Where is it? Thanks & bye",
        "status": 2,
        "priority": 1,
        "source": 2,
        "tags": [],
        "custom_fields": {"cf_shop": "Berlin"},
        "created_at": "2026-11-30T11:00:00Z",
        "updated_at": "2026-11-30T11:00:00Z",
        **more,
    }


def jira(key: str = "SUP-1", **more: Any) -> dict[str, Any]:
    """An issue as the interface of Jira gives it."""
    fields = {
        "summary": "My parcel",
        "description": "Where is it?",
        "created": "2026-11-30T12:00:00.000+0100",
        "updated": "2026-11-30T12:00:00.000+0100",
        "priority": {"name": "High", "id": "2"},
        "labels": ["parcel", "vip"],
        "comment": {"comments": [{"body": "I have looked."}]},
    }
    return {"expand": "operations", "id": "10001", "key": key, "fields": {**fields, **more}}


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def texts(seen: Read) -> list[tuple[str, str, str]]:
    return [(ticket.custom_id, ticket.subject, ticket.body) for ticket in seen.tickets]


class TestZendesk:
    def test_one_ticket_a_line(self, tmp_path: Path) -> None:
        seen = read_file(tmp_path, lines(zendesk(35436)), "tickets.json", format="zendesk")
        assert texts(seen) == [("35436", "My parcel", "Where is it?\n\nThanks")]
        assert seen.tickets[0].created_at == AT_NOON
        assert seen.notes == ()

    def test_pages_of_its_interface_one_behind_another_or_one_a_line(self, tmp_path: Path) -> None:
        first = {"tickets": [zendesk(1), zendesk(2)], "next_page": "https://shop.example/2", "count": 3}
        second = {"tickets": [zendesk(3)], "next_page": None, "count": 3}
        for written in (
            lines(first, second),
            json.dumps(first, indent=2) + json.dumps(second, indent=2),
            json.dumps([first, second]),
            json.dumps([zendesk(1), zendesk(2), zendesk(3)], indent=1),
            lines([zendesk(1), zendesk(2)], [zendesk(3)]),
            lines(*({"ticket": zendesk(number)} for number in (1, 2, 3))),
        ):
            assert list(read_file(tmp_path, written, "tickets.json", format="zendesk").bodies) == ["1", "2", "3"]

    def test_where_there_is_no_description_the_first_comment_stands_for_it(self, tmp_path: Path) -> None:
        comments = [{"plain_body": "First", "body": "**First**"}, {"plain_body": "Second"}]
        seen = read_file(tmp_path, lines(zendesk(description="", comments=comments)), "t.jsonl", format="zendesk")
        assert seen.bodies == {"1": "First"}

    def test_a_custom_field_is_named_by_its_id(self, tmp_path: Path) -> None:
        columns = Columns(subject="custom_fields.27642")
        seen = read_file(tmp_path, lines(zendesk()), "t.jsonl", format="zendesk", columns=columns)
        assert seen.tickets[0].subject == "745"

    def test_the_view_as_csv_has_no_description(self, tmp_path: Path) -> None:
        content = (
            '"Summation column","Id","Requester","Subject","Tags","Priority","Via","Created at","Updated at"\n'
            '"1","17","Ada","My parcel","parcel vip","Urgent","Web","2026-11-30 12:00:00","2026-11-30 12:05:00"\n'
        )
        seen = read_file(tmp_path, content, format="zendesk")
        assert texts(seen) == [("17", "My parcel", "")]
        assert seen.tickets[0].priority == 2
        assert seen.notes == ("there is no description in this export: the subjects alone are classified",)

    def test_tags_may_say_what_is_urgent(self, tmp_path: Path) -> None:
        rule = Urgent(column="tags", values=("VIP",))
        written = lines(zendesk(1), zendesk(2, tags=["parcel"], priority="urgent"), zendesk(3, tags=[]))
        seen = read_file(tmp_path, written, "t.jsonl", format="zendesk", urgent=rule)
        assert [ticket.priority for ticket in seen.tickets] == [2, 0, 0]
        content = "Id,Subject,Tags,Created at\n1,a,parcel vip,2026-11-30\n2,b,vipers,2026-11-30\n"
        seen = read_file(tmp_path, content, format="zendesk", urgent=rule)
        assert [ticket.priority for ticket in seen.tickets] == [2, 0]


class TestFreshdesk:
    def test_the_plain_description_goes_before_the_one_in_html(self, tmp_path: Path) -> None:
        written = json.dumps([freshdesk(1), freshdesk(2, description_text=None)])
        seen = read_file(tmp_path, written, "tickets.json", format="freshdesk")
        assert seen.bodies == {"1": "Where is it? Thanks & bye", "2": "Where is it?\n\nThanks & bye"}
        assert seen.notes == ("HTML, of which only the text was kept: 1",)

    def test_the_accounts_export_wraps_each_ticket_and_has_two_ids(self, tmp_path: Path) -> None:
        ticket = freshdesk(5000123, display_id=12, description="Plain", description_html="<p>Plain</p>")
        del ticket["description_text"]
        seen = read_file(tmp_path, json.dumps([{"helpdesk_ticket": ticket}]), "Tickets0.json", format="freshdesk")
        assert texts(seen) == [("12", "My parcel", "Plain")]

    def test_priorities_are_numbers_with_a_meaning(self, tmp_path: Path) -> None:
        written = lines(*(freshdesk(number, priority=number) for number in (1, 2, 3, 4)))
        seen = read_file(tmp_path, written, "t.jsonl", format="freshdesk")
        assert [ticket.priority for ticket in seen.tickets] == [-1, 0, 1, 2]

    def test_csv(self, tmp_path: Path) -> None:
        content = (
            "Ticket ID,Subject,Status,Priority,Source,Created time,Last update time,Tags\n"
            '7,My parcel,Open,High,Email,2026-11-30 12:00:00,2026-11-30 12:30:00,"parcel,big vip"\n'
        )
        rule = Urgent(column="Tags", values=("big vip",))
        seen = read_file(tmp_path, content, format="freshdesk", urgent=rule)
        assert [(ticket.custom_id, ticket.created_at, ticket.priority) for ticket in seen.tickets] == [
            ("7", AT_NOON, 2)
        ]


class TestJira:
    HEADER = "Summary,Issue key,Issue id,Priority,Created,Updated,Description,Labels,Labels,Comment,Comment\n"
    DATES = "30/Nov/26 12:00 PM,30/Nov/26 1:00 PM"

    def test_csv_with_repeated_columns_and_comments(self, tmp_path: Path) -> None:
        content = self.HEADER + (
            f'Parcel,SUP-1,1,High,{self.DATES},Where; is it?,a,vip,"30/Nov/26 12:10 PM;ada;Hi",\n'
            f'Bill,SUP-2,2,Lowest,{self.DATES},,,,"30/Nov/26 12:10 PM;5b10a2844c20;See:\na; b",x\n'
        )
        seen = read_file(tmp_path, content, format="jira")
        assert texts(seen) == [("SUP-1", "Parcel", "Where; is it?"), ("SUP-2", "Bill", "See:\na; b")]
        assert [ticket.priority for ticket in seen.tickets] == [1, -2]
        assert {ticket.created_at for ticket in seen.tickets} == {AT_NOON}
        assert seen.notes == ('the column "comment" is there 2 times: the first that is not empty counts',)

    @pytest.mark.parametrize(
        ("cell", "body"),
        [
            ("30/Nov/26 12:10 PM;ada;Hi", "Hi"),
            ("2026-11-30 12:10;ada;Hi; you", "Hi; you"),
            ("01.02.26 12:10;5b10a2844c20eb;Hi", "Hi"),
            ("2026/11/30;ada;", ""),
            ("I bought 2 items; they broke; help", "I bought 2 items; they broke; help"),
            ("On 30/Nov/26; again; it broke", "On 30/Nov/26; again; it broke"),
            ("12:30; no date; here", "12:30; no date; here"),
        ],
    )
    def test_only_what_begins_with_a_date_and_an_author_is_a_comment(
        self, tmp_path: Path, cell: str, body: str
    ) -> None:
        seen = read_file(tmp_path, self.HEADER + f"P,SUP-1,1,High,{self.DATES},{cell},,,,\n", format="jira")
        assert seen.bodies == {"SUP-1": body}

    def test_all_of_a_repeated_column_may_say_what_is_urgent(self, tmp_path: Path) -> None:
        content = self.HEADER + f"P,SUP-1,1,High,{self.DATES},x,a,VIP,,\nB,SUP-2,2,High,{self.DATES},y,a,b,,\n"
        seen = read_file(tmp_path, content, format="jira", urgent=Urgent(column="Labels", values=("vip",)))
        assert [ticket.priority for ticket in seen.tickets] == [2, 0]

    def test_issues_of_its_interface(self, tmp_path: Path) -> None:
        page = {"expand": "schema", "startAt": 0, "total": 2, "issues": [jira(), jira("SUP-2", description=None)]}
        seen = read_file(tmp_path, json.dumps(page, indent=2), "issues.json", format="jira")
        assert texts(seen) == [("SUP-1", "My parcel", "Where is it?"), ("SUP-2", "My parcel", "I have looked.")]
        assert seen.tickets[0].priority == 1
        assert seen.tickets[0].created_at == AT_NOON

    def test_documents_that_no_editor_makes(self, tmp_path: Path) -> None:
        of_lists = {"type": ["doc"], "content": [{"type": "text", "text": "of lists"}]}
        deep: dict[str, Any] = {"type": "text", "text": "deep"}
        for _ in range(300):
            deep = {"type": "paragraph", "content": [deep]}
        content = lines(jira(description=of_lists), jira("SUP-2", description=deep), jira("SUP-3"))
        seen = read_file(tmp_path, content, "issues.jsonl", format="jira")
        assert list(seen.bodies) == ["SUP-1", "SUP-2", "SUP-3"]
        assert (seen.bodies["SUP-1"], seen.bodies["SUP-2"]) == ("of lists", "")

    def test_a_description_that_is_a_document(self, tmp_path: Path) -> None:
        def paragraph(*content: Any) -> dict[str, Any]:
            return {"type": "paragraph", "content": list(content)}

        def words(text: str) -> dict[str, Any]:
            return {"type": "text", "text": text, "marks": [{"type": "strong"}]}

        items = [{"type": "listItem", "content": [paragraph(words(text))]} for text in ("one", "two")]
        mention = {"type": "mention", "attrs": {"id": "1", "text": "@Ada"}}
        document = {
            "type": "doc",
            "version": 1,
            "content": [
                paragraph(words("Where "), words("is it, "), mention, {"type": "hardBreak"}, words("please?")),
                {"type": "bulletList", "content": items},
                {"type": "mediaSingle", "content": [{"type": "media", "attrs": {"id": "x"}}]},
            ],
        }
        seen = read_file(tmp_path, lines(jira(description=document)), "issues.jsonl", format="jira")
        assert seen.bodies == {"SUP-1": "Where is it, @Ada\nplease?\none\ntwo"}
        assert seen.rejections == []


class TestTheSameTicketAgain:
    def test_the_version_changed_last_counts_wherever_it_stands(self, tmp_path: Path) -> None:
        written = lines(
            zendesk(1, updated_at="2026-11-30T12:00:00Z", description="newest"),
            zendesk(2, description="other"),
            zendesk(1, updated_at="2026-11-30T11:30:00Z", description="older"),
            zendesk(1, updated_at="soon", description="no date"),
            zendesk(3, updated_at="2026-11-30T11:30:00Z", description="first of two alike"),
            zendesk(3, updated_at="2026-11-30T12:30:00+01:00", description="last of two alike"),
        )
        seen = read_file(tmp_path, written, "t.jsonl", format="zendesk")
        assert seen.bodies == {"1": "newest", "2": "other", "3": "last of two alike"}
        assert seen.notes == ("earlier versions of a ticket that comes again, left out: 3",)

    def test_without_dates_of_change_the_last_counts(self, tmp_path: Path) -> None:
        first, second = zendesk(1, description="first"), zendesk(1, description="second")
        del first["updated_at"], second["updated_at"]
        assert read_file(tmp_path, lines(first, second), "t.jsonl", format="zendesk").bodies == {"1": "second"}

    def test_any_source_can_name_its_date_of_change(self, tmp_path: Path) -> None:
        content = "id,created_at,body,changed\n1,2026-11-30,new,2026-12-01\n1,2026-11-30,old,2026-11-30\n"
        assert read_file(tmp_path, content, columns=Columns(updated_at="changed")).bodies == {"1": "new"}
        with refused('no column "chnged" for columns.updated_at (nearest: "changed")'):
            read_file(tmp_path, content, columns=Columns(updated_at="chnged"))

    def test_rows_without_an_id_are_all_told(self, tmp_path: Path) -> None:
        seen = read_file(tmp_path, lines(zendesk(id=None), zendesk(id=None), zendesk(1)), "t.jsonl", format="zendesk")
        assert seen.reasons == {1: "the id is empty", 2: "the id is empty"}
        assert list(seen.bodies) == ["1"]


class TestWhatIsBroken:
    def test_a_broken_line_stops_no_other(self, tmp_path: Path) -> None:
        written = lines(zendesk(1)) + '{"id": 2, "subject": "cut\n' + lines({"tickets": [7, zendesk(3)]}, "x")
        seen = read_file(tmp_path, written, "t.jsonl", format="zendesk")
        assert list(seen.bodies) == ["1", "3"]
        assert seen.reasons == {
            2: "not valid JSON: Unterminated string starting at column 22",
            3: "not a JSON object",
            4: "not a JSON object",
        }

    @pytest.mark.parametrize("end", ["", ',{"id": 3, "subj', ",{]"])
    def test_a_document_that_breaks_off_is_not_taken_for_a_whole_one(self, tmp_path: Path, end: str) -> None:
        written = "[\n" + ",\n".join(json.dumps(zendesk(number)) for number in (1, 2)) + end
        with refused("tickets.json cannot be read from line 3 on", "export or copy it again"):
            read_file(tmp_path, written, "tickets.json", format="zendesk")

    def test_a_document_of_many_pieces(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(json_rows, "PIECE_CHARACTERS", 7)
        tickets = [zendesk(number, description="Grüße 😀 " * number) for number in range(1, 40)]
        written = json.dumps(tickets, indent=1, ensure_ascii=False)
        seen = read_file(tmp_path, written.encode("utf-16"), "tickets.json", format="zendesk")
        assert list(seen.bodies) == [str(number) for number in range(1, 40)]
        brace = written.rindex("{", 0, written.index("tickets/2.json"))
        assert seen.tickets[1].line == written[:brace].count("\n") + 1

    def test_a_packed_document_that_was_cut_off(self, tmp_path: Path) -> None:
        noise = random.Random(7)
        tickets = [zendesk(number, description=noise.randbytes(2000).hex()) for number in range(200)]
        packed = gzip.compress(json.dumps(tickets, indent=1).encode(), mtime=0)
        path = tmp_path / "tickets.json.gz"
        path.write_bytes(packed[: len(packed) // 2])
        with pytest.raises(UserError, match="is cut off after line") as caught:
            read(open_source(SourceSettings(path=str(path), format="zendesk"), DAY))
        line = int(re.findall(r"line ([\d,]+)", str(caught.value))[0].replace(",", ""))
        lines_of_a_ticket = json.dumps(tickets[0], indent=1).count("\n") + 1
        assert 80 * lines_of_a_ticket < line < 110 * lines_of_a_ticket

    def test_a_page_beyond_all_bounds(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(json_rows, "PAGE_LIMIT_CHARACTERS", 1000)
        written = "[" + json.dumps(zendesk(1, description="x" * 200_000)) + "]"
        with refused("cannot be read from line 1 on"):
            read_file(tmp_path, written, "tickets.json", format="zendesk")

    def test_another_products_export_names_what_is_missing(self, tmp_path: Path) -> None:
        with refused('no column "issue key" for columns.id', 'no column "created" for columns.created_at'):
            read_file(tmp_path, "Ticket ID,Subject,Created time\n1,a,2026-11-30\n", format="jira")
        with refused('no column "summary" for columns.subject', "is it an export of jira? set [source] columns"):
            read_file(tmp_path, lines(zendesk()), "t.jsonl", format="jira")

    def test_settings_stand_over_the_format(self, tmp_path: Path) -> None:
        columns = Columns(body="fields.labels.0", id="id")
        seen = read_file(tmp_path, lines(jira()), "t.jsonl", format="jira", columns=columns)
        assert texts(seen) == [("10001", "My parcel", "parcel")]


def test_a_format_given_at_submit_goes_before_the_settings(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(lines(jira()), encoding="utf-8")
    settings = SourceSettings(path=str(path), format="zendesk")
    assert read(open_source(settings, DAY, override_format="jira")).bodies == {"SUP-1": "Where is it?"}


def test_a_query_has_no_format(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="format is for files"):
        SourceSettings(url="sqlite:///x.db", query="SELECT 1", format="jira")
    with refused("--format jira is for a file"):
        open_source(SourceSettings(url="sqlite:///x.db", query="SELECT 1"), DAY, override_format="jira")
