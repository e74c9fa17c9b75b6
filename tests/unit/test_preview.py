"""What a submit would do: the counts of the source, and plain arithmetic on tokens."""

from pathlib import Path

import pytest

from jobs.intake.source import open_source
from jobs.preview import Preview, Spread, preview
from tests.support.intake import DAY
from tickets_batch.settings import Source as SourceSettings

HEADER = "id,created_at,subject,body\n"
NOON = "2026-11-30 12:00:00"


def previewed(folder: Path, content: str, slots: int = 4, slot_tokens_per_second: float | None = None) -> Preview:
    path = folder / "tickets.csv"
    path.write_text(content)
    return preview(
        open_source(SourceSettings(path=str(path)), DAY),
        tokens_of=len,
        shared_tokens=100,
        output_tokens=32,
        slots=slots,
        slot_tokens_per_second=slot_tokens_per_second,
    )


def test_counts_what_would_be_submitted_and_what_not(tmp_path: Path) -> None:
    content = HEADER + (
        f"1,{NOON},s,b\n2,{NOON},,\n3,soon,s,b\n4,2026-11-29 12:00,s,b\n"
        f"1,{NOON},other,text\n5;{NOON};s;b\n6,{NOON},s,<p>b</p>\n"
    )
    seen = previewed(tmp_path, content)
    assert (seen.tickets, seen.rejected, seen.outside_day) == (2, 4, 1)
    assert [(rejection.line, rejection.custom_id) for rejection in seen.rejections] == [
        (3, "2"),
        (4, "3"),
        (6, "1"),
        (7, f"5;{NOON};s;b"),
    ]
    assert seen.rejections[2].reason == "duplicate id"
    assert seen.notes == ("HTML, of which only the text was kept: 1",)


def test_a_ticket_asks_for_its_whole_prompt_and_the_output_cap(tmp_path: Path) -> None:
    seen = previewed(tmp_path, HEADER + f"1,{NOON},sub,body\n")
    asked = 100 + len("sub\nbody") + 32
    assert seen.tokens == Spread(total=asked, p50=asked, p95=asked, largest=asked)


def test_the_spread_of_many_tickets(tmp_path: Path) -> None:
    rows = "".join(f"{size},{NOON},,{'x' * size}\n" for size in range(1, 101))
    seen = previewed(tmp_path, HEADER + rows)
    shared = 100 + 1 + 32  # the prompt, the newline behind an empty subject, the output
    assert seen.tokens == Spread(total=100 * shared + 5050, p50=shared + 50, p95=shared + 95, largest=shared + 100)


def test_the_time_is_the_total_divided_over_the_slots(tmp_path: Path) -> None:
    content = HEADER + "".join(f"{number},{NOON},,{'x' * 67}\n" for number in range(40))  # 200 tokens each
    assert previewed(tmp_path, content, slots=4, slot_tokens_per_second=100).seconds == 20
    assert previewed(tmp_path, content, slots=8, slot_tokens_per_second=100).seconds == 10


def test_no_number_of_slots_is_faster_than_the_largest_ticket(tmp_path: Path) -> None:
    content = HEADER + f"1,{NOON},,{'x' * 867}\n2,{NOON},,{'x' * 67}\n"
    assert previewed(tmp_path, content, slots=1000, slot_tokens_per_second=100).seconds == 10


def test_without_a_known_speed_no_time_is_made_up(tmp_path: Path) -> None:
    assert previewed(tmp_path, HEADER + f"1,{NOON},s,b\n").seconds is None


@pytest.mark.parametrize("speed", [None, 100.0])
def test_no_tickets(tmp_path: Path, speed: float | None) -> None:
    seen = previewed(tmp_path, HEADER, slot_tokens_per_second=speed)
    assert seen.tokens == Spread(0, 0, 0, 0)
    assert seen.tickets == 0
    assert seen.seconds == (None if speed is None else 0)


def test_only_the_first_rejections_are_listed_but_all_are_counted(tmp_path: Path) -> None:
    seen = previewed(tmp_path, HEADER + f",{NOON},s,b\n" * 50)
    assert seen.rejected == 50
    assert [rejection.line for rejection in seen.rejections] == list(range(2, 22))
