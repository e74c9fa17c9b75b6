"""Nights in which the clocks change: `submit` takes the right day's tickets, ends at the right instant, and says so."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.states import BatchState
from jobs.store import batches, moves, results
from jobs.store.database import Database
from tests.support.store import ManualClock, claim
from tickets_batch.cli.intent import Options
from tickets_batch.cli.submit import enter
from tickets_batch.settings import Settings


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def settings(zone: str, folder: Path) -> Settings:
    return Settings(
        timezone=zone,
        deadline="07:00",
        source={"path": str(folder / "tickets.csv")},
        classification={"labels": {"a": "", "b": ""}},
        pool=[{"name": "gpu", "base_url": "http://127.0.0.1:9/v1", "model": "m", "capacity": {"slots": 2}}],
    )


def options(**changes: object) -> Options:
    values: dict[str, object] = {
        "date": "today",
        "every_row": False,
        "input": None,
        "deadline": None,
        "not_before": None,
        "update": False,
        "new": False,
        "allow_empty": False,
    }
    return Options(**(values | changes))  # type: ignore[arg-type]


class Evening:
    """One zone in one evening: `submit` in it, and what it said."""

    def __init__(self, db: Database, clock: ManualClock, folder: Path, zone: str, now: str) -> None:
        self.db, self.clock, self.folder, self.zone = db, clock, folder, zone
        clock.instant = utc(now)

    def tickets(self, *created: str) -> None:
        """One ticket for each instant, in UTC, which is its id."""
        rows = "".join(f"{text},{text}Z,text\n" for text in created)
        (self.folder / "tickets.csv").write_text(f"id,created_at,body\n{rows}")

    def submit(self, **changes: object) -> str:
        return enter(self.db, settings(self.zone, self.folder), options(**changes)).id

    def ids(self, batch: str) -> list[str]:
        return [row.custom_id for row in results.stream(self.db, batch)]


DAYS = [
    # zone, now, the day it is there: first and last second of it
    ("Europe/Berlin", "2026-03-29 20:00", "2026-03-28 23:00:00", "2026-03-29 21:59:59", "2026-03-30 05:00"),
    ("Europe/Berlin", "2026-03-28 20:00", "2026-03-27 23:00:00", "2026-03-28 22:59:59", "2026-03-29 05:00"),
    ("Europe/Berlin", "2026-10-25 20:00", "2026-10-24 22:00:00", "2026-10-25 22:59:59", "2026-10-26 06:00"),
    ("Europe/Berlin", "2026-10-24 20:00", "2026-10-23 22:00:00", "2026-10-24 21:59:59", "2026-10-25 06:00"),
    ("America/New_York", "2026-03-08 20:00", "2026-03-08 05:00:00", "2026-03-09 03:59:59", "2026-03-09 11:00"),
    ("America/New_York", "2026-03-07 23:00", "2026-03-07 05:00:00", "2026-03-08 04:59:59", "2026-03-08 11:00"),
    ("America/New_York", "2026-11-01 20:00", "2026-11-01 04:00:00", "2026-11-02 04:59:59", "2026-11-02 12:00"),
    ("America/New_York", "2026-10-31 23:00", "2026-10-31 04:00:00", "2026-11-01 03:59:59", "2026-11-01 12:00"),
    ("Australia/Lord_Howe", "2026-04-05 10:00", "2026-04-04 13:00:00", "2026-04-05 13:29:59", "2026-04-05 20:30"),
    ("Australia/Lord_Howe", "2026-04-04 10:00", "2026-04-03 13:00:00", "2026-04-04 12:59:59", "2026-04-04 20:30"),
    ("Australia/Lord_Howe", "2026-10-04 10:00", "2026-10-03 13:30:00", "2026-10-04 12:59:59", "2026-10-04 20:00"),
    ("Australia/Lord_Howe", "2026-10-03 10:00", "2026-10-02 13:30:00", "2026-10-03 13:29:59", "2026-10-03 20:00"),
    ("Asia/Kolkata", "2026-03-29 16:00", "2026-03-28 18:30:00", "2026-03-29 18:29:59", "2026-03-30 01:30"),
    ("Asia/Kolkata", "2026-10-25 16:00", "2026-10-24 18:30:00", "2026-10-25 18:29:59", "2026-10-26 01:30"),
    ("Africa/Cairo", "2026-04-23 20:00", "2026-04-22 22:00:00", "2026-04-23 21:59:59", "2026-04-24 04:00"),
    ("Africa/Cairo", "2026-04-24 18:00", "2026-04-23 22:00:00", "2026-04-24 20:59:59", "2026-04-25 04:00"),
    ("Africa/Cairo", "2026-10-29 21:30", "2026-10-28 21:00:00", "2026-10-29 21:59:59", "2026-10-30 05:00"),
    ("Africa/Cairo", "2026-10-30 18:00", "2026-10-29 22:00:00", "2026-10-30 21:59:59", "2026-10-31 05:00"),
]


@pytest.mark.parametrize(("zone", "now", "first", "last", "deadline"), DAYS)
def test_today_is_the_right_day_and_ends_at_seven_on_the_clocks_of_the_zone(
    store: Database,
    store_clock: ManualClock,
    tmp_path: Path,
    zone: str,
    now: str,
    first: str,
    last: str,
    deadline: str,
) -> None:
    evening = Evening(store, store_clock, tmp_path, zone, now)
    second = timedelta(seconds=1)
    outside = [f"{utc(first) - second:%Y-%m-%d %H:%M:%S}", f"{utc(last) + second:%Y-%m-%d %H:%M:%S}"]
    evening.tickets(outside[0], first, last, outside[1])

    batch = evening.submit()

    assert evening.ids(batch) == [first, last]
    store_clock.instant = utc(deadline) - second
    assert moves.expire_overdue(store) == 0
    assert [job.custom_id for job in claim(store, batch, 1)] == [first]
    store_clock.instant = utc(deadline)
    assert claim(store, batch) == []
    assert moves.expire_overdue(store) == 1


ODD = [
    (
        "Europe/Berlin",
        "2026-03-28 20:00",
        "02:30",
        "2026-03-29 01:00",
        "the clocks of Europe/Berlin skip 02:30 on 2026-03-29: {what} is 2026-03-29 03:00 (UTC+0200), right after "
        "the gap",
    ),
    (
        "Europe/Berlin",
        "2026-10-24 20:00",
        "02:30",
        "2026-10-25 00:30",
        "the clocks of Europe/Berlin show 02:30 twice on 2026-10-25: {what} is 2026-10-25 02:30 (UTC+0200), "
        "the first of the two",
    ),
    (
        "Europe/Berlin",
        "2026-10-25 00:45",
        "02:30",
        "2026-10-26 01:30",
        "the clocks of Europe/Berlin show 02:30 once more before, but the first of the two is over: {what} is "
        "2026-10-26 02:30 (UTC+0100)",
    ),
    (
        "Australia/Lord_Howe",
        "2026-10-03 10:00",
        "02:15",
        "2026-10-03 15:30",
        "the clocks of Australia/Lord_Howe skip 02:15 on 2026-10-04: {what} is 2026-10-04 02:30 (UTC+1100), right "
        "after the gap",
    ),
    (
        "Africa/Cairo",
        "2026-04-23 20:00",
        "00:00",
        "2026-04-23 22:00",
        "the clocks of Africa/Cairo skip 00:00 on 2026-04-24: {what} is 2026-04-24 01:00 (UTC+0300), right after "
        "the gap",
    ),
    (
        "Africa/Cairo",
        "2026-10-29 19:30",
        "23:30",
        "2026-10-29 20:30",
        "the clocks of Africa/Cairo show 23:30 twice on 2026-10-29: {what} is 2026-10-29 23:30 (UTC+0300), "
        "the first of the two",
    ),
]


@pytest.mark.parametrize(("zone", "now", "asked", "at", "said"), ODD)
def test_a_time_that_does_not_exist_or_comes_twice_is_shown_with_what_was_taken(
    store: Database,
    store_clock: ManualClock,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    zone: str,
    now: str,
    asked: str,
    at: str,
    said: str,
) -> None:
    evening = Evening(store, store_clock, tmp_path, zone, now)
    evening.tickets(f"{utc(now):%Y-%m-%d %H:%M:%S}")

    batch = evening.submit(deadline=asked)
    assert batches.get(store, batch).deadline_at == utc(at)
    assert said.format(what="the deadline") in capsys.readouterr().err.splitlines()

    later = evening.submit(deadline="none", not_before=asked, new=True)
    assert batches.get(store, later).not_before == utc(at)
    assert said.format(what="the begin") in capsys.readouterr().err.splitlines()
    store_clock.instant = utc(at) - timedelta(seconds=1)
    assert claim(store, later) == []
    store_clock.instant = utc(at)
    assert len(claim(store, later)) == 1
    assert moves.expire_overdue(store) == 1
    assert batches.get(store, batch).state is BatchState.EXPIRED


def test_of_a_usual_night_nothing_is_said(
    store: Database, store_clock: ManualClock, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evening = Evening(store, store_clock, tmp_path, "Europe/Berlin", "2026-03-28 20:00")
    evening.tickets("2026-03-28 20:00:00")
    evening.submit(not_before="23:00")
    assert "the clocks of" not in capsys.readouterr().err


def test_of_a_begin_that_is_not_kept_nothing_is_said(
    store: Database, store_clock: ManualClock, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evening = Evening(store, store_clock, tmp_path, "Europe/Berlin", "2026-03-28 20:00")
    evening.tickets("2026-03-28 20:00:00")
    batch = evening.submit(deadline="23:00", not_before="02:30")
    said = capsys.readouterr().err
    assert "02:30 comes next after the deadline: the batch may begin at once" in said
    assert "the clocks of" not in said
    assert batches.get(store, batch).not_before is None
