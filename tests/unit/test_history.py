"""What chat has held: kept in order as readings come and go, it tells what a look at all of them would."""

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from scheduler.capacity import NOTHING, Amount
from scheduler.headroom import HORIZONS_SECONDS
from scheduler.history import ALIKE_SHARE, ENOUGH, HIGH_QUANTILE, KEEP_SECONDS, RISE_QUANTILE, ChatHistory

Readings = list[tuple[float, Amount]]
# Mostly two a second, as the control loop reads; now and then it stood still, or looked twice at one moment.
steps = st.sampled_from([0.5] * 12 + [0.0, 0.1, 0.7, 3.0, 9.9, 31.0, 121.0])
amounts = st.builds(Amount, st.integers(0, 6), st.integers(0, 4)) | st.builds(
    Amount, st.integers(0, 300), st.integers(0, 9000)
)


def quantile(values: list[int], share: float) -> int:
    return sorted(values)[int(share * (len(values) - 1))] if values else 0


def rises_of_all(readings: Readings, now: Amount) -> tuple[Amount, ...]:
    """By the words of `ChatHistory.rises`, from all readings at once."""
    seconds = [at for at, _ in readings]
    near = max(1, round(now.slots * ALIKE_SHARE))
    found: list[Amount] = []
    for horizon in HORIZONS_SECONDS:
        rises = []
        for start, (at, held) in enumerate(readings):
            end = bisect_left(seconds, at + horizon)
            if end < len(readings):
                window = [amount for _, amount in readings[start : end + 1]]
                most = Amount(max(one.slots for one in window), max(one.tokens for one in window))
                rises.append((held.slots, most - held))
        before = found[-1] if found else NOTHING
        alike = [rise for slots, rise in rises if abs(slots - now.slots) <= near]
        counted = alike if len(alike) >= ENOUGH else [rise for _, rise in rises]
        rise = Amount(
            quantile([one.slots for one in counted], RISE_QUANTILE),
            quantile([one.tokens for one in counted], RISE_QUANTILE),
        )
        found.append(rise.at_least(before) if rises else before)
    return tuple(found)


@given(st.lists(st.tuples(steps, amounts), max_size=120), st.integers(0, 8))
def test_it_tells_what_all_readings_of_the_last_minutes_tell(story: list[tuple[float, Amount]], slots: int) -> None:
    history, at = ChatHistory(), 0.0
    readings: Readings = []
    for step, amount in story:
        at += step
        history.add(at, amount)
        readings = [one for one in [*readings, (at, amount)] if one[0] >= at - KEEP_SECONDS]
        now = Amount(slots, 0)
        assert history.rises(now) == rises_of_all(readings, now)
        assert history.high() == Amount(
            quantile([one.slots for _, one in readings], HIGH_QUANTILE),
            quantile([one.tokens for _, one in readings], HIGH_QUANTILE),
        )


def test_it_forgets() -> None:
    history = ChatHistory()
    for number in range(240):
        history.add(number / 2, Amount(20, 20_000))
    for number in range(400):
        history.add(120 + number / 2, Amount(1, 100))
    assert history.high() == Amount(1, 100)
    assert history.rises(Amount(1, 100)) == (NOTHING,) * len(HORIZONS_SECONDS)
