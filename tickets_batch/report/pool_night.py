"""One pool's night: what batch might hold and held, what the chat felt, and what batch cost it."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from statistics import fmean
from typing import Any, Self

from jobs.store.samples import LoadSample
from scheduler.capacity import PoolCapacity
from scheduler.limit import Rule
from scheduler.pool_reading import Condition
from scheduler.pools import capacity_of
from scheduler.receipt import CONFIDENCE, SAMPLE_SECONDS, Look, Receipt, receipt
from tickets_batch.cli.times import iso
from tickets_batch.settings import Pool

MOST_STEPS = 2_000  # in a curve: a longer night is drawn in longer steps
LEAST_DRAWN = 2  # samples: one alone is no curve
GAP_SECONDS = 3 * SAMPLE_SECONDS  # a longer silence belongs to no sample
NEVER_OPEN = (Condition.DEDICATED, Condition.CLOSED, Condition.BLIND, Condition.STALE, "paused")


@dataclass(frozen=True, slots=True)
class Curves:
    """The night in steps of `step_seconds`, each given by its end; None where nothing was recorded in a step.

    `ttft_seconds` is the worst of the step's samples, each of which tells within how long 19 of 20 first tokens of the
    chat came; the others are means of slots.
    """

    step_seconds: float
    at: tuple[datetime, ...]
    ttft_seconds: tuple[float | None, ...]
    limit_slots: tuple[float | None, ...]
    batch_slots: tuple[float | None, ...]
    chat_slots: tuple[float | None, ...]

    @property
    def can_be_drawn(self) -> bool:
        """Whether there is more than a point of them."""
        return sum(slots is not None for slots in self.limit_slots) >= LEAST_DRAWN


@dataclass(frozen=True, slots=True)
class PoolNight:
    """One pool. `seen_seconds` of `night_seconds` were recorded, in `floor_seconds` of which batch was at its floor.

    `rule_seconds` is for how long each rule bound. `late_share` is the share of the samples with first tokens of the
    chat in which more than 1 in 20 came after the target. Capacity, floor, target and price are those configured now;
    None where the pool no longer is.
    """

    name: str
    capacity: PoolCapacity | None
    ttft_target_seconds: float | None
    cost_per_hour: float | None
    is_dedicated: bool
    night_seconds: float
    seen_seconds: float
    floor_seconds: float | None
    rule_seconds: Mapping[str, float]
    arrivals: int
    refused: int
    revoked: int
    late_share: float | None
    batch_share: float | None
    receipt: Receipt
    curves: Curves

    @classmethod
    def of(
        cls, name: str, seen: Sequence[LoadSample], began_at: datetime, ended_at: datetime, pool: Pool | None
    ) -> Self:
        """From its samples in order, and what is configured of it."""
        capacity = capacity_of(pool) if pool is not None else None
        seconds = _seconds(seen, began_at)
        rules: Counter[str] = Counter()
        for sample, length in zip(seen, seconds, strict=True):
            rules[sample.reason] += length  # type: ignore[assignment]
        target = pool.ttft_target_seconds if pool is not None else None
        ttfts = [sample.ttft_seconds for sample in seen if sample.ttft_seconds is not None]
        return cls(
            name=name,
            capacity=capacity,
            ttft_target_seconds=target,
            cost_per_hour=pool.cost_per_hour if pool is not None else None,
            is_dedicated=bool(seen) and all(sample.reason == Rule.DEDICATED for sample in seen),
            night_seconds=(ended_at - began_at).total_seconds(),
            seen_seconds=sum(seconds),
            floor_seconds=None if capacity is None else _at_floor(seen, seconds, capacity),
            rule_seconds=dict(rules.most_common()),
            arrivals=sum(sample.interactive_arrivals for sample in seen),
            refused=sum(sample.interactive_refused for sample in seen),
            revoked=sum(sample.revoked for sample in seen),
            late_share=fmean(ttft > target for ttft in ttfts) if ttfts and target is not None else None,
            batch_share=fmean(sample.batch_slots for sample in seen) / capacity.total.slots
            if seen and capacity is not None
            else None,
            receipt=receipt(_look(sample) for sample in seen),
            curves=_curves(seen, began_at, ended_at),
        )

    def as_json(self) -> dict[str, Any]:
        """The pool for `--json`."""
        curves, capacity = self.curves, self.capacity
        return {
            "name": self.name,
            "capacity": asdict(capacity.total) if capacity else None,
            "floor": asdict(capacity.floor) if capacity else None,
            "ttft_target_seconds": self.ttft_target_seconds,
            "is_dedicated": self.is_dedicated,
            "seen_seconds": round(self.seen_seconds, 1),
            "floor_seconds": None if self.floor_seconds is None else round(self.floor_seconds, 1),
            "rule_seconds": {rule: round(seconds, 1) for rule, seconds in self.rule_seconds.items()},
            "arrivals": self.arrivals,
            "refused": self.refused,
            "revoked": self.revoked,
            "late_share": self.late_share,
            "batch_share": self.batch_share,
            "receipt": {**asdict(self.receipt), "confidence": CONFIDENCE},
            "curves": {**asdict(curves), "at": [iso(at) for at in curves.at]},
        }


def _look(sample: LoadSample) -> Look:
    return Look(
        at=sample.at,
        chat_slots=sample.interactive_slots,
        arrivals=sample.interactive_arrivals,
        ttft_seconds=sample.ttft_seconds,
        batch_slots=sample.batch_slots,
        is_held_out=sample.reason == Rule.HOLDOUT,
        is_open=sample.reason not in NEVER_OPEN,
    )


def _seconds(seen: Sequence[LoadSample], began_at: datetime) -> list[float]:
    """For how long each sample speaks: since the one before it, unless nothing was recorded for long."""
    before, found = began_at, []
    for sample in seen:
        since = (sample.at - before).total_seconds()
        found.append(since if since <= GAP_SECONDS else SAMPLE_SECONDS)
        before = sample.at
    return found


def _at_floor(seen: Sequence[LoadSample], seconds: Sequence[float], capacity: PoolCapacity) -> float:
    if capacity.is_dedicated:
        return 0.0
    floor = capacity.floor
    return sum(
        length
        for sample, length in zip(seen, seconds, strict=True)
        if not floor.slots < sample.limit_slots or not floor.tokens < sample.limit_tokens
    )


def _curves(seen: Sequence[LoadSample], began_at: datetime, ended_at: datetime) -> Curves:
    night_seconds = (ended_at - began_at).total_seconds()
    step_seconds = SAMPLE_SECONDS * max(1, math.ceil(night_seconds / SAMPLE_SECONDS / MOST_STEPS))
    steps: dict[int, list[LoadSample]] = {}
    for sample in seen:
        number = (
            math.ceil((sample.at - began_at).total_seconds() / step_seconds) - 1
        )  # a sample tells of what was before
        steps.setdefault(max(0, number), []).append(sample)
    numbers = range(max(steps, default=-1) + 1)
    filled = [steps.get(number, ()) for number in numbers]
    return Curves(
        step_seconds=step_seconds,
        at=tuple(began_at + timedelta(seconds=(number + 1) * step_seconds) for number in numbers),
        ttft_seconds=tuple(
            max((sample.ttft_seconds for sample in step if sample.ttft_seconds is not None), default=None)
            for step in filled
        ),
        limit_slots=tuple(_mean([sample.limit_slots for sample in step]) for step in filled),
        batch_slots=tuple(_mean([sample.batch_slots for sample in step]) for step in filled),
        chat_slots=tuple(_mean([sample.interactive_slots for sample in step]) for step in filled),
    )


def _mean(values: Sequence[int]) -> float | None:
    return round(fmean(values), 2) if values else None
