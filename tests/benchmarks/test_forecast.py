"""How well the end of a night is foretold, in virtual time: errors of p50, coverage of p90, and when the pace is told.

The nights are kept under `.cache` until a source of them changes; the forecasts are always made anew.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import pytest

from scheduler.pace import Pace
from scheduler.usual import UsualLoad
from tests.simulation.forecast_judge import (
    MARKS,
    Miss,
    Told,
    batch_of,
    coverage,
    forecasts,
    median_miss,
    misses,
    told,
    usual_of,
)
from tests.simulation.forecast_nights import Played, Stretch, play_all

SEEDS = (1, 2, 3, 4, 5)
HOURS = 8.0
VOLUMES = (10_000, 20_000, 30_000)
# The chat steps about a quarter of an hour before half of the tickets are done.
STEPS = {"step-up": {10_000: 1900.0, 20_000: 4800.0}, "step-down": {10_000: 3700.0, 20_000: 8400.0}}
STEP_HOURS = {10_000: 2.75, 20_000: 5.0}
SHAPES = ("constant", "alternating", "diurnal", "trace", "step-up", "step-down")
UNTUNED = ("waves", "long-answers")  # nobody looked at these while the forecast was made
UNTUNED_SEEDS = (1, 2, 3)
ERRORS = {0.25: 0.15, 0.5: 0.10, 0.75: 0.05}  # of the time that remains, median
COVERAGE = 0.85
UNFORESEEABLE = ("diurnal", "step-up", "step-down")  # on the first night: nothing tells that the chat will change

LATE = 0.85  # of its time: a deadline that a batch misses
MADE = 0.8  # of the time until a deadline that a batch makes with a fifth to spare
TENTH = 0.1
HOPELESS = {1.5: 60.0, 1.25: 120.0}  # times what the full limit does without any chat: seconds until it is told
FULL = Played("none", 1, 0.5)

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(2 * 3600)]

Batch = tuple[Played, int]  # a night, and a number of tickets
Rows = dict[Played, Sequence[Stretch]]


def batches(shapes: Iterable[str]) -> list[Batch]:
    """Each night and volume of these shapes."""
    found: list[Batch] = []
    for shape in shapes:
        for seed in UNTUNED_SEEDS if shape in UNTUNED else SEEDS:
            if shape in STEPS:
                found += [(Played(shape, seed, STEP_HOURS[n], at), n) for n, at in STEPS[shape].items()]
            else:
                found += [(Played(shape, seed, HOURS), tickets) for tickets in VOLUMES]
    return found


@pytest.fixture(scope="module")
def rows() -> Rows:
    wanted = batches(SHAPES + UNTUNED)
    return dict(play_all([FULL, *(night for night, _ in wanted)]))


def before(night: Played, rows: Rows) -> list[Sequence[Stretch]]:
    """The nights before this one: those of the other seeds."""
    others = (Played(night.shape, seed, night.hours, night.step_at) for seed in SEEDS if seed != night.seed)
    return [rows[other] for other in others if other in rows]


def all_misses(wanted: Iterable[Batch], rows: Rows, *, is_first: bool) -> list[Miss]:
    found: list[Miss] = []
    for night, tickets in wanted:
        batch = batch_of(rows[night], tickets)
        assert batch is not None, f"{night} is too short for {tickets} tickets"
        found += misses(night, batch, tickets, None if is_first else usual_of(before(night, rows)))
    return found


def show(title: str, found: Sequence[Miss]) -> None:
    print(f"\n{title}\n{'':14}{'n':>4}" + "".join(f"{f'at {mark:.0%}: |p50|':>18}{'p90 held':>10}" for mark in MARKS))
    shapes = {miss.night.shape for miss in found}
    for name, some in [*((shape, {shape}) for shape in sorted(shapes)), ("all", shapes)]:
        of = [[miss for miss in found if miss.night.shape in some and miss.mark == mark] for mark in MARKS]
        print(f"{name:14}{len(of[0]):4}" + "".join(f"{median_miss(one):18.1%}{coverage(one):10.0%}" for one in of))


def assert_good(found: Sequence[Miss]) -> None:
    """Over all nights together; a step that is yet to come is not foretold."""
    for mark in MARKS:
        counts = [miss for miss in found if miss.mark == mark and (mark > MARKS[0] or miss.night.shape not in STEPS)]
        assert median_miss(counts) <= ERRORS[mark], f"at {mark:.0%} of the work"
    assert coverage(found) >= COVERAGE


@pytest.mark.parametrize("is_first", [True, False], ids=["first night", "nights stored"])
@pytest.mark.parametrize("shapes", [SHAPES, UNTUNED], ids=["shapes", "shapes that nobody looked at"])
def test_the_end_is_foretold(rows: Rows, shapes: tuple[str, ...], is_first: bool) -> None:
    found = all_misses(batches(shapes), rows, is_first=is_first)
    show("the first night" if is_first else "nights of the same shape stored", found)
    assert_good(found)


# --- the pace


@dataclass(frozen=True, slots=True)
class Judged:
    """What one batch was told under three deadlines; times in seconds, infinite for never."""

    shape: str
    late_at: float  # that it was at risk, with a deadline that it missed by LATE
    late_tenth: float  # a tenth of the time until that deadline
    hopeless_at: Mapping[float, float]  # that it would miss a deadline that the full limit could not have kept
    spared_at: float  # that it would miss a deadline that it made with a fifth to spare
    changes: int  # told under the last


def judge(shape: str, batch: Sequence[Stretch], usual: UsualLoad | None, full_rate: float) -> Judged:
    end, tokens = batch[-1].at, sum(row.tokens for row in batch)
    found = forecasts(batch, usual)
    late, spared = told(found, end * LATE), told(found, end / MADE)
    hopeless = {times: told(found, tokens / (full_rate * times)) for times in HOPELESS}
    return Judged(
        shape,
        first(late, Pace.AT_RISK, Pace.WILL_MISS),
        end * LATE * TENTH,
        {times: first(changes, Pace.WILL_MISS) for times, changes in hopeless.items()},
        first(spared, Pace.WILL_MISS),
        len(spared),
    )


def first(changes: Iterable[Told], *paces: Pace) -> float:
    """When one of these was first told."""
    return min((change.after_seconds for change in changes if change.pace in paces), default=math.inf)


@pytest.mark.parametrize("is_first", [True, False], ids=["first night", "nights stored"])
def test_the_pace_is_told_in_time(rows: Rows, is_first: bool) -> None:
    full_rate = sum(row.tokens for row in rows[FULL][12:]) / sum(row.seconds for row in rows[FULL][12:])
    judged: list[Judged] = []
    for night, tickets in batches(SHAPES):
        batch = batch_of(rows[night], tickets)
        assert batch is not None
        usual = None if is_first else usual_of(before(night, rows))
        judged.append(judge(night.shape, batch, usual, full_rate))
    in_time = [one for one in judged if one.late_at <= one.late_tenth]
    print(
        f"\n{'first night' if is_first else 'nights stored'}, {len(judged)} batches, full limit {full_rate:.0f}/s\n"
        f"missed by {1 / LATE - 1:.0%}: at risk told before a tenth of the time {len(in_time)}; the others: "
        f"{sorted({one.shape for one in judged} - {one.shape for one in in_time}) or 'none'}\n"
        f"made with a fifth to spare: will miss told to {sum(one.spared_at < math.inf for one in judged)}, "
        f"changes told {sum(one.changes for one in judged) / len(judged):.1f} in the mean"
    )
    for times, seconds in HOPELESS.items():
        after = sorted(one.hopeless_at[times] for one in judged)
        print(f"{times} times the full limit: will miss told after {median(after):.0f} s, {after[-1]:.0f} s at most")
        assert after[-1] <= seconds
    foreseeable = [one for one in judged if not is_first or one.shape not in UNFORESEEABLE]
    assert all(one.late_at <= one.late_tenth for one in foreseeable)
    assert all(one.spared_at == math.inf for one in judged)
