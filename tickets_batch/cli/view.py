"""A batch as `--json` prints it. The keys are stable; names follow the OpenAI Batch API where it has one."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from jobs.store.batches import Batch
from scheduler.capacity import Amount, PoolCapacity, total
from scheduler.pool_reading import Condition, PoolReading, Source, quantile
from tickets_batch.cli.prospect import Prospect
from tickets_batch.cli.times import iso

COUNTS = ("total", "pending", "running", "succeeded", "failed", "expired", "cancelled", "reused", "rejected")
POOL_KEYS = (
    *("condition", "limit", "published", "published_at", "next_change_at", "capacity", "floor"),
    *("in_flight", "prefill", "load", "paused_seconds", "arrivals", "refused", "revoked"),
)


def as_json(
    batch: Batch,
    pools: Mapping[str, PoolReading],
    prospect: Prospect,
    now: datetime,
    configured: Mapping[str, PoolCapacity],
) -> dict[str, Any]:
    """The batch, what is foreseen of it, and what the ledgers of its pools say; what cannot be known now is null.

    That is all but capacity and floor of a pool whose ledger is away, as when the embedded services have ended with the
    batch; `configured` are the capacities of the settings' pools.
    `rate_per_second` counts from the first claim to the end or to now. `eta` is the scheduler's forecast; without one,
    `p50` is when the rest is done at that rate. Amounts are sums over the batch's pools, each of which is in `pools`.
    """
    forecast = prospect.forecast
    p50_at = eta(batch, rate_per_second(batch, now), now) if forecast is None else forecast.p50_at
    ours = [pools[name] for name in batch.pools if name in pools]
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
        "eta": {"p50": iso(p50_at), "p90": iso(forecast.p90_at) if forecast else None},
        "pace": forecast.pace if forecast else None,
        "forecast": prospect.as_json(),
        "waits_for": list(prospect.waits_for),
        "forecast_errors": [asdict(judged) for judged in prospect.judged],
        "limit": _limits(ours),
        "in_flight": {
            "interactive": _amount(total(pool.chat for pool in ours)) if ours else None,
            "batch": _amount(total(pool.snapshot.batch for pool in ours)) if ours else None,
        },
        "load": _loads(ours),
        "yields": batch.yields,
        "withdrawn": batch.withdrawn,
        "tokens": {
            "prompt": batch.prompt_tokens,
            "completion": batch.completion_tokens,
            "wasted": batch.wasted_tokens,
        },
        "pools": [_pool(name, pools.get(name), configured.get(name)) for name in batch.pools],
    }


def done(batch: Batch) -> int:
    """Jobs that have an end of their own, succeeded or failed; of one expired or cancelled nothing was done."""
    return batch.succeeded + batch.failed


def done_in_words(batch: Batch) -> str:
    """How many of all are done: `20,016 of 40,000`."""
    return f"{done(batch):,} of {batch.total:,}"


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


def _limits(pools: list[PoolReading]) -> dict[str, Any] | None:
    if not pools:
        return None
    reasons = [pool.reason for pool in pools]
    if len(pools) > 1:
        reasons = [f"{pool.name}: {reason}" for pool, reason in zip(pools, reasons, strict=True)]
    return {**_amount(total(pool.limit for pool in pools)), "reason": "; ".join(reasons)}


def _loads(pools: list[PoolReading]) -> dict[str, Any] | None:
    """What is known of the chat on all pools; a dedicated one has none."""
    if not pools:
        return None
    snapshots = [pool.snapshot for pool in pools]
    shared = [pool.snapshot for pool in pools if not pool.capacity.is_dedicated]
    return {
        "interactive_waiting": sum(snapshot.interactive_waiting for snapshot in snapshots),
        "oldest_waiting_seconds": max(snapshot.oldest_waiting_seconds for snapshot in snapshots),
        "observed_is_fresh": bool(shared) and all(snapshot.observed_is_fresh for snapshot in shared),
        "is_blind": any(pool.condition is Condition.BLIND for pool in pools),
        "ttft_seconds": _ttft([seconds for pool in pools for seconds in pool.ttfts_seconds]),
        "refused": sum(snapshot.refused for snapshot in snapshots),
        "sources": [{"pool": pool.name, **_source(source)} for pool in pools for source in pool.sources],
    }


def _pool(name: str, pool: PoolReading | None, capacity: PoolCapacity | None) -> dict[str, Any]:
    """One pool; what its ledger would say is null where that cannot be read, all where it is not in the settings."""
    if pool is None:
        known = {"capacity": _amount(capacity.total), "floor": _amount(capacity.floor)} if capacity else {}
        return {"name": name, **dict.fromkeys(POOL_KEYS), **known}
    snapshot = pool.snapshot
    return {
        "name": name,
        "condition": pool.condition.value,
        "limit": {
            **_amount(pool.limit),
            "rule": pool.binding,
            "reason": pool.reason,
        },
        "published": _amount(snapshot.limit) if snapshot.limit_is_published else None,
        "published_at": iso(pool.published_at),
        "next_change_at": iso(pool.hours.next_change(pool.at)),
        "capacity": _amount(pool.capacity.total),
        "floor": _amount(pool.capacity.floor),
        "in_flight": {
            "interactive": _amount(pool.chat),
            "batch": _amount(snapshot.batch),
            "reclaiming": _amount(snapshot.reclaiming),
        },
        "prefill": {"tokens": snapshot.prefill_tokens, "budget_tokens": snapshot.prefill_limit_tokens},
        "load": {
            "waiting": snapshot.interactive_waiting,
            "oldest_waiting_seconds": snapshot.oldest_waiting_seconds,
            "ttft_seconds": _ttft(pool.ttfts_seconds),
            "is_congested": pool.note is not None and pool.note.load.is_congested,
            "sources": [_source(source) for source in pool.sources],
            "door_age_seconds": snapshot.beat_age_seconds,
        },
        "paused_seconds": snapshot.paused_seconds,
        "arrivals": snapshot.arrivals,
        "refused": snapshot.refused,
        "revoked": snapshot.revoked,
    }


def _ttft(seconds: Iterable[float]) -> dict[str, Any]:
    """Half of the last chat requests had their first token within `p50` seconds, 19 of 20 within `p95`."""
    waited = list(seconds)
    return {"p50": quantile(waited, 0.5), "p95": quantile(waited, 0.95), "count": len(waited)}


def _source(source: Source) -> dict[str, Any]:
    age = source.age_seconds
    return {
        "name": source.name,
        "age_seconds": None if age is None else round(age, 1),
        "is_fresh": source.is_fresh,
    }


def _amount(amount: Amount) -> dict[str, int]:
    return {"slots": amount.slots, "tokens": amount.tokens}
