"""A batch as `--json` prints it. The keys are stable; names follow the OpenAI Batch API where it has one."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from jobs.store.batches import Batch
from scheduler.capacity import NOTHING, Amount
from scheduler.snapshot import Snapshot
from tickets_batch.cli.times import iso

COUNTS = ("total", "pending", "running", "succeeded", "failed", "expired", "cancelled", "reused", "rejected")


def as_json(batch: Batch, snapshots: Mapping[str, Snapshot], now: datetime) -> dict[str, Any]:
    """The batch, and what the ledgers of its pools say; what cannot be known now is null.

    `rate_per_second` counts from the first claim to the end or to now. `eta` is when the rest is done at that rate.
    """
    ours = [snapshots[pool] for pool in batch.pools if pool in snapshots]
    rate = rate_per_second(batch, now)
    return {
        "batch_id": batch.id,
        "date": batch.date.isoformat() if batch.date else None,
        "state": batch.state.value,
        "blocked": batch.blocked,
        "created_at": iso(batch.created_at),
        "not_before": iso(batch.not_before),
        "deadline_at": iso(batch.deadline_at),
        "finished_at": iso(batch.finished_at),
        "request_counts": {name: getattr(batch, name) for name in COUNTS},
        "rate_per_second": round(rate, 3) if rate is not None else None,
        "eta": {"p50": iso(eta(batch, rate, now)), "p90": None},
        "pace": None,
        "limit": _limit(ours),
        "in_flight": {
            "interactive": _amount(_sum(s.interactive.at_least(s.observed) for s in ours)) if ours else None,
            "batch": _amount(_sum(s.batch for s in ours)) if ours else None,
        },
        "load": _load(ours),
        "yields": batch.yields,
        "withdrawn": batch.withdrawn,
        "tokens": {
            "prompt": batch.prompt_tokens,
            "completion": batch.completion_tokens,
            "wasted": batch.wasted_tokens,
        },
    }


def done(batch: Batch) -> int:
    """Jobs in a final state."""
    return batch.total - batch.pending - batch.running


def rate_per_second(batch: Batch, now: datetime) -> float | None:
    """Tickets answered per second since the first claim; None when none was."""
    answered = batch.succeeded + batch.failed - batch.reused
    if batch.started_at is None or answered <= 0:
        return None
    seconds = ((batch.finished_at or now) - batch.started_at).total_seconds()
    return answered / seconds if seconds > 0 else None


def eta(batch: Batch, rate: float | None, now: datetime) -> datetime | None:
    """When the rest is done at this rate; None when the batch has ended, or nothing is known."""
    remaining = batch.pending + batch.running
    if batch.state.is_final or not remaining or not rate:
        return None
    return now + timedelta(seconds=remaining / rate)


def _limit(snapshots: list[Snapshot]) -> dict[str, Any] | None:
    if not snapshots:
        return None
    stale = [snapshot for snapshot in snapshots if not snapshot.limit_is_published]
    reason = "no fresh limit: the floor holds" if stale else "as published"
    return {**_amount(_sum(snapshot.limit for snapshot in snapshots)), "reason": reason}


def _load(snapshots: list[Snapshot]) -> dict[str, Any] | None:
    if not snapshots:
        return None
    return {
        "interactive_waiting": sum(snapshot.interactive_waiting for snapshot in snapshots),
        "oldest_waiting_seconds": max(snapshot.oldest_waiting_seconds for snapshot in snapshots),
        "observed_is_fresh": all(snapshot.observed_is_fresh for snapshot in snapshots),
    }


def _sum(amounts: Iterable[Amount]) -> Amount:
    return sum(amounts, start=NOTHING)


def _amount(amount: Amount) -> dict[str, int]:
    return {"slots": amount.slots, "tokens": amount.tokens}
