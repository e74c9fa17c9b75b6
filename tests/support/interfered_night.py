"""Nights of a chat beside a batch that is known to disturb it, as a pool's samples would tell of them.

Each night is made twice from the same chance: as it was, and as it would have been with batch at its floor all along.
What the batch cost in truth is the difference.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import fmean

from scheduler.holdout import is_held_out
from scheduler.receipt import SAMPLE_SECONDS, SETTLE_SECONDS, Look

POOL = "gpu"
BEGAN = datetime(2026, 11, 30, 22, 0, tzinfo=UTC)
SLOTS, FLOOR = 20, 2
STAY_SECONDS = 4.0  # of a chat request at the engine

Delay = Callable[[int, float, random.Random], float]  # of a request: by borrowed slots, chat in flight, chance


@dataclass(frozen=True, slots=True)
class InterferedNight:
    """What the samples say, and the truth: how much later the first tokens came, in seconds, in an average minute."""

    looks: tuple[Look, ...]
    cost_seconds: float
    naive_seconds: float  # what one would think who compares the minutes at the floor with those above it


def interfered_night(
    seed: int, delay: Delay, *, hours: float = 8.0, share: float = 0.02, requests_per_second: float = 1.0
) -> InterferedNight:
    """A night whose chat comes in waves that last for many minutes, and in bursts within them."""
    rng = random.Random(seed)
    began = BEGAN + timedelta(days=seed)  # so that chance draws other minutes
    wave, burst = rng.gauss(0, 1), 0.0
    looks: list[Look] = []
    by_minute: dict[int, list[tuple[float, float, int]]] = {}
    at_floor: list[float] = []
    above: list[float] = []
    for step in range(1, round(hours * 3600 / SAMPLE_SECONDS) + 1):
        at = began + timedelta(seconds=step * SAMPLE_SECONDS - 1.0)
        wave = 0.995 * wave + math.sqrt(1 - 0.995**2) * rng.gauss(0, 1)  # half an hour
        burst = 0.8 * burst + 0.6 * rng.gauss(0, 1)  # a minute
        rate = requests_per_second * math.exp(0.7 * wave + 0.5 * burst - 0.4)
        arrivals = _poisson(rate * SAMPLE_SECONDS, rng)
        chat = min(SLOTS, _poisson(arrivals / SAMPLE_SECONDS * STAY_SECONDS, rng))
        held_out = is_held_out(POOL, at, share)
        borrowed = 0 if held_out else max(0, SLOTS - FLOOR - 1 - round(1.5 * chat))
        stall = rng.expovariate(1.0) if rng.random() < 0.004 else 0.0  # of the engine, whoever is at it
        calm = [stall + _undisturbed(chat, rng) for _ in range(arrivals)]
        late = [seconds + delay(max(0, SLOTS - FLOOR - 1 - round(1.5 * chat)), chat, rng) for seconds in calm]
        calm_p95, late_p95 = _p95(calm), _p95(late)
        seen = calm_p95 if held_out else late_p95
        looks.append(Look(at, chat, arrivals, seen, FLOOR + borrowed, held_out, is_open=True))
        if calm_p95 is not None and late_p95 is not None:
            (above if borrowed else at_floor).append(late_p95)
            if at.timestamp() % 60 >= SETTLE_SECONDS + SAMPLE_SECONDS:
                by_minute.setdefault(int(at.timestamp() // 60), []).append((calm_p95, late_p95, arrivals))
    costs = [_mean(seen, 1) - _mean(seen, 0) for seen in by_minute.values()]
    naive = fmean(above) - fmean(at_floor) if above and at_floor else math.nan
    return InterferedNight(tuple(looks), fmean(costs), naive)


def none(borrowed: int, chat: float, rng: random.Random) -> float:
    """Batch is not felt at all."""
    return 0.0


def steady(borrowed: int, chat: float, rng: random.Random) -> float:
    """Each slot that batch borrows delays every request a little."""
    return 0.02 * borrowed


def stumbling(borrowed: int, chat: float, rng: random.Random) -> float:
    """Now and then a request meets a long prefill of batch's; most meet none."""
    return rng.expovariate(1 / 0.8) if borrowed and rng.random() < 0.04 else 0.0


def when_busy(borrowed: int, chat: float, rng: random.Random) -> float:
    """Batch is felt only where the chat is busy itself."""
    return 0.5 * rng.random() if borrowed and chat >= 6 else 0.0


def _undisturbed(chat: int, rng: random.Random) -> float:
    """A time to first token beside so much chat, with the long tail that such times have."""
    return (0.15 + 0.02 * chat) * rng.lognormvariate(0.0, 0.45)


def _p95(seconds: Sequence[float]) -> float | None:
    return sorted(seconds)[math.ceil(0.95 * len(seconds)) - 1] if seconds else None


def _mean(seen: Sequence[tuple[float, float, int]], column: int) -> float:
    return fmean([one[column] for one in seen], [one[2] for one in seen])


def _poisson(mean: float, rng: random.Random) -> int:
    count, left = 0, rng.expovariate(1.0) if mean > 0 else math.inf
    while left < mean:
        count += 1
        left += rng.expovariate(1.0)
    return count
