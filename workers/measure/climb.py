"""How many tickets in flight are measured next. Pure.

First ever more, in doublings, up to the pool's slots and over them while that still brings something; then between the
steps around the knee, and around the last one at which a chat request is still in time.
"""

from collections.abc import Iterator, Sequence

from scheduler.curve import Curve, Step

OVER_SLOTS = 2  # times the configured slots, at most
GAIN = 1.10  # over the best before: less is no reason to go over the slots
LEVEL = 1.05  # less than this twice in a row: it has levelled off
REFINED = 4  # steps between others, at most


def next_in_flight(
    steps: Sequence[Step], slots: int, ttft_target_seconds: float | None, refused_at: int | None = None
) -> int | None:
    """The next number to measure, None when it is done. `steps` are in the order of their numbers.

    `refused_at` is the smallest number at which the engine turned requests away. Without a target (a pool of batch's
    own) only the knee counts.
    """
    rungs = [rung for rung in _ladder(slots) if refused_at is None or rung < refused_at]
    above = [rung for rung in rungs if not steps or rung > steps[-1].in_flight]
    if above and not _has_levelled_off(steps, slots):
        return above[0]
    if not steps or sum(step.in_flight not in rungs for step in steps) >= REFINED:
        return None
    return next(_between(steps, ttft_target_seconds), None)


def _ladder(slots: int) -> list[int]:
    doubled = {1 << power for power in range((OVER_SLOTS * slots).bit_length())}
    return sorted(rung for rung in doubled | {slots, OVER_SLOTS * slots} if rung <= OVER_SLOTS * slots)


def _has_levelled_off(steps: Sequence[Step], slots: int) -> bool:
    gains = [
        step.tickets_per_second / max(earlier.tickets_per_second for earlier in steps[:place])
        for place, step in enumerate(steps)
        if place
    ]
    if not gains:
        return False
    is_flat = len(gains) >= 2 and max(gains[-2:]) < LEVEL
    return is_flat or (steps[-1].in_flight >= slots and gains[-1] < GAIN)


def _between(steps: Sequence[Step], ttft_target_seconds: float | None) -> Iterator[int]:
    """The middles of the gaps below the knee and above the last step in time, while they are wide."""
    curve = Curve(tuple(steps), 1, 1, 1, 1, "")
    gaps = [steps.index(curve.knee) - 1]
    if ttft_target_seconds is not None and (within := curve.most_within(ttft_target_seconds)) is not None:
        gaps.append(steps.index(within))
    numbers = [step.in_flight for step in steps]
    for place in gaps:
        if 0 <= place < len(numbers) - 1:
            gap = numbers[place + 1] - numbers[place]
            if gap > max(1, numbers[place] // 4):
                yield numbers[place] + gap // 2
