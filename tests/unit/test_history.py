"""What chat has held: kept in order as readings come and go, it tells what a look at all of them would."""

from bisect import bisect_left
from statistics import fmean

from hypothesis import given
from hypothesis import strategies as st

from scheduler.capacity import NOTHING, Amount
from scheduler.headroom import HORIZONS_SECONDS
from scheduler.history import (
    ALIKE_SHARE,
    BEFORE_SECONDS,
    ENOUGH,
    HIGH_QUANTILE,
    KEEP_SECONDS,
    RISE_QUANTILE,
    ChatHistory,
)

Readings = list[tuple[float, Amount]]
# Mostly two a second, as the control loop reads; now and then it stood still, or looked twice at one moment.
steps = st.sampled_from([0.5] * 12 + [0.0, 0.1, 0.7, 3.0, 9.9, 31.0, 121.0])
amounts = st.builds(Amount, st.integers(0, 6), st.integers(0, 4)) | st.builds(
    Amount, st.integers(0, 300), st.integers(0, 9000)
)


def quantile(values: list[int], share: float) -> int:
    return sorted(values)[int(share * (len(values) - 1))] if values else 0


def before(story: Readings, index: int) -> float:
    """What chat held some seconds before a reading, on average: what it held then, where nobody looked."""
    at, held = story[index]
    latest, earliest = (at - ago for ago in BEFORE_SECONDS)
    earlier = [one.slots for seconds, one in story[:index] if earliest <= seconds <= latest]
    return fmean(earlier) if earlier else held.slots


def rises_of_all(story: Readings) -> tuple[Amount, ...]:
    """By the words of `ChatHistory.rises`, from all readings at once."""
    first = next(index for index, (at, _) in enumerate(story) if at >= story[-1][0] - KEEP_SECONDS)
    readings = story[first:]
    moments = [(one.slots, before(story, first + index)) for index, (_, one) in enumerate(readings)]
    seconds = [at for at, _ in readings]

    def near(slots: float) -> float:
        return 1 + ALIKE_SHARE * slots

    def is_alike(index: int) -> bool:
        both = zip(moments[index], moments[-1], strict=True)
        return all(now - near(now) <= then <= now + near(now) for then, now in both)

    def unlike(index: int) -> float:
        both = zip(moments[index], moments[-1], strict=True)
        return max(abs(then - now) / near(now) for then, now in both)

    found: list[Amount] = []
    for horizon in HORIZONS_SECONDS:
        rises = []
        for start, (at, held) in enumerate(readings):
            end = bisect_left(seconds, at + horizon)
            if end < len(readings):
                window = [amount for _, amount in readings[start : end + 1]]
                most = Amount(max(one.slots for one in window), max(one.tokens for one in window))
                rises.append((start, most - held))
        earlier = found[-1] if found else NOTHING
        alike = [rise for start, rise in rises if is_alike(start)]
        likest = sorted(rises, key=lambda one: unlike(one[0]))[:ENOUGH]
        counted = alike if len(alike) >= ENOUGH else [rise for _, rise in likest]
        rise = Amount(
            quantile([one.slots for one in counted], RISE_QUANTILE),
            quantile([one.tokens for one in counted], RISE_QUANTILE),
        )
        found.append(rise.at_least(earlier))
    return tuple(found)


@given(st.lists(st.tuples(steps, amounts), min_size=1, max_size=120))
def test_it_tells_what_all_readings_of_the_last_minutes_tell(story: list[tuple[float, Amount]]) -> None:
    history, at = ChatHistory(), 0.0
    readings: Readings = []
    for step, amount in story:
        at += step
        history.add(at, amount)
        readings.append((at, amount))
        kept = [one for seconds, one in readings if seconds >= at - KEEP_SECONDS]
        assert history.rises() == rises_of_all(readings)
        assert history.high() == Amount(
            quantile([one.slots for one in kept], HIGH_QUANTILE), quantile([one.tokens for one in kept], HIGH_QUANTILE)
        )


def test_it_knows_in_which_part_of_a_wave_it_is() -> None:
    """Ten seconds of quiet and ten of a wave: just after a wave nothing comes for three seconds, later it does."""
    history, rises = ChatHistory(), []
    for number in range(940):  # the beginning is forgotten by then
        is_wave = number // 20 % 2 == 1
        history.add(number / 2, Amount(12 if is_wave else 2, 1_000))
        rises.append(history.rises()[HORIZONS_SECONDS.index(3.0)].slots)
    last_quiet = rises[920:940]
    assert last_quiet[2] == 0  # one second into the quiet
    assert last_quiet[18] == 10  # one second before the next wave


def test_nothing_is_told_before_anything_was_read() -> None:
    assert ChatHistory().rises() == (NOTHING,) * len(HORIZONS_SECONDS)
    assert ChatHistory().high() == NOTHING


def test_it_forgets() -> None:
    history = ChatHistory()
    for number in range(480):
        history.add(number / 2, Amount(20, 20_000))
    for number in range(600):
        history.add(240 + number / 2, Amount(1, 100))
    assert history.high() == Amount(1, 100)
    assert history.rises() == (NOTHING,) * len(HORIZONS_SECONDS)
