"""The chat that is usual at a time of day: moving average over stored nights, on the clock of a zone."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.usual import NIGHT_WEIGHT, UsualLoad

BERLIN = ZoneInfo("Europe/Berlin")


@dataclass(frozen=True, slots=True)
class Sample:
    at: datetime
    interactive_slots: int
    interactive_tokens: int = 0
    reason: str = "headroom"


def berlin(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN).astimezone(UTC)


def half_hour(begins: str, slots: int, reason: str = "headroom") -> list[Sample]:
    """Thirty minutes of samples."""
    first = berlin(begins)
    return [Sample(first + timedelta(minutes=minute), slots, slots * 700, reason) for minute in range(30)]


def test_nothing_is_usual_before_the_first_night() -> None:
    assert UsualLoad.of([], BERLIN).at(berlin("2026-12-01 02:15")) is None


def test_the_mean_of_the_half_hour() -> None:
    usual = UsualLoad.of(
        [Sample(berlin("2026-11-30 02:01"), 2, 1000), Sample(berlin("2026-11-30 02:29"), 5, 3000)], BERLIN
    )
    level = usual.at(berlin("2026-12-01 02:15"))
    assert level is not None
    assert (level.slots, level.tokens) == (3.5, 2000.0)


def test_a_half_hour_of_which_nothing_is_stored_is_not_known() -> None:
    usual = UsualLoad.of(half_hour("2026-11-30 02:00", 4), BERLIN)
    assert usual.at(berlin("2026-12-01 02:31")) is None
    assert usual.at(berlin("2026-12-01 01:59")) is None


def test_straight_from_the_middle_of_one_half_hour_to_the_next_also_over_midnight() -> None:
    usual = UsualLoad.of(half_hour("2026-11-29 23:30", 2) + half_hour("2026-11-30 00:00", 6), BERLIN)
    slots = [usual.at(berlin(f"2026-12-01 {clock}")) for clock in ("23:30", "23:45", "00:00", "00:15", "00:29")]
    assert [level.slots for level in slots if level] == [2.0, 2.0, 4.0, 6.0, 6.0]


def test_newer_nights_weigh_more() -> None:
    usual = UsualLoad.of(half_hour("2026-11-30 02:00", 1) + half_hour("2026-11-28 02:00", 9), BERLIN)
    level = usual.at(berlin("2026-12-01 02:15"))
    assert level is not None
    assert level.slots == pytest.approx((1 + 9 * NIGHT_WEIGHT**2) / (1 + NIGHT_WEIGHT**2))


def test_a_blind_sample_is_no_quiet_one() -> None:
    samples = half_hour("2026-11-30 02:00", 4) + half_hour("2026-11-29 02:00", 0, "blind")
    level = UsualLoad.of(samples, BERLIN).at(berlin("2026-12-01 02:15"))
    assert level is not None
    assert level.slots == 4.0


def test_the_clock_counts_where_the_clocks_were_changed() -> None:
    summer = half_hour("2026-10-24 06:00", 7)  # 04:00 UTC
    level = UsualLoad.of(summer, BERLIN).at(berlin("2026-10-26 06:15"))  # 05:15 UTC
    assert level is not None
    assert level.slots == 7.0


@given(st.lists(st.tuples(st.integers(0, 3 * 24 * 60), st.integers(0, 40)), min_size=1))
def test_it_is_never_outside_of_what_was_seen(seen: list[tuple[int, int]]) -> None:
    first = berlin("2026-11-25 00:00")
    usual = UsualLoad.of([Sample(first + timedelta(minutes=minute), slots) for minute, slots in seen], BERLIN)
    for minute, _ in seen:
        level = usual.at(first + timedelta(minutes=minute))
        assert level is not None
        assert min(slots for _, slots in seen) - 1e-9 <= level.slots <= max(slots for _, slots in seen) + 1e-9
