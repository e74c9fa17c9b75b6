"""What the scheduler shows Prometheus of each pool: who holds what, what batch may hold and why, the chat's waits."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from scheduler.capacity import Amount
from scheduler.limit import Rule
from scheduler.permit import Kind
from scheduler.pool_reading import Condition, PoolReading, quantile

RULES = (*dict.fromkeys(str(word) for word in (*Condition, *Rule)), "paused")

_AMOUNTS: tuple[tuple[str, str, Callable[[PoolReading], Amount]], ...] = (
    ("capacity", "What the pool carries", lambda pool: pool.capacity.total),
    ("floor", "What is always batch's own", lambda pool: pool.capacity.floor),
    ("limit", "The most that batch may hold now", lambda pool: pool.limit),
    ("reclaiming", "Held by batch, but asked back or withdrawn", lambda pool: pool.snapshot.reclaiming),
)
_GAUGES: tuple[tuple[str, str, Callable[[PoolReading], float]], ...] = (
    ("chat_waiting", "Chat requests without a first token.", lambda pool: pool.snapshot.interactive_waiting),
    (
        "chat_oldest_waiting_seconds",
        "Since when the oldest chat request without a first token waits.",
        lambda pool: pool.snapshot.oldest_waiting_seconds,
    ),
    ("paused_seconds", "How long the engine asked to be left alone yet.", lambda pool: pool.snapshot.paused_seconds),
)
_COUNTERS: tuple[tuple[str, str, Callable[[PoolReading], float]], ...] = (
    ("chat_requests", "Chat requests admitted.", lambda pool: pool.snapshot.arrivals),
    ("chat_refused", "Chat requests refused.", lambda pool: pool.snapshot.refused),
    ("revoked", "Requests of batch that were asked back.", lambda pool: pool.snapshot.revoked),
)


def pool_families(pools: Sequence[PoolReading], ttft_targets_seconds: Mapping[str, float]) -> Iterator[Metric]:
    """The metrics of the last look at these pools; without any their names alone."""
    for name, words, held in _AMOUNTS:
        yield from _both_axes(name, words, [([pool.name], held(pool)) for pool in pools])
    by_class = [
        ([pool.name, kind.value], amount)
        for pool in pools
        for kind, amount in ((Kind.INTERACTIVE, pool.chat), (Kind.BATCH, pool.snapshot.batch))
    ]
    yield from _both_axes("in_flight", "At the engine now, by class", by_class, "class")
    for name, words, read in _GAUGES:
        gauge = _gauge(name, words)
        for pool in pools:
            gauge.add_metric([pool.name], read(pool))
        yield gauge
    for name, words, count in _COUNTERS:
        counter = CounterMetricFamily(f"tickets_batch_pool_{name}", words, labels=["pool"])
        for pool in pools:
            counter.add_metric([pool.name], count(pool))
        yield counter
    yield from _felt(pools, ttft_targets_seconds)
    yield from _reasons(pools)


def _felt(pools: Sequence[PoolReading], ttft_targets_seconds: Mapping[str, float]) -> Iterator[Metric]:
    ttft = _gauge("chat_ttft_seconds", "Time to first token of the last chat requests.", "quantile")
    target = _gauge("chat_ttft_target_seconds", "What that is to stay under.")
    for pool in pools:
        for share in (0.5, 0.95):
            seconds = quantile(pool.ttfts_seconds, share)
            if seconds is not None:
                ttft.add_metric([pool.name, str(share)], seconds)
        target.add_metric([pool.name], ttft_targets_seconds[pool.name])
    yield from (ttft, target)


def _reasons(pools: Sequence[PoolReading]) -> Iterator[Metric]:
    condition = _gauge("condition", "1 for what batch has of the pool now, 0 for the others.", "condition")
    rule = _gauge("rule", "1 for the rule that binds now, 0 for the others.", "rule")
    age = _gauge("reading_age_seconds", "Since the last sign of life of what tells of the chat.", "source")
    fresh = _gauge("source_fresh", "1 while that is young enough to be believed.", "source")
    for pool in pools:
        for state in Condition:
            condition.add_metric([pool.name, state.value], state is pool.condition)
        for word in RULES:
            rule.add_metric([pool.name, word], word == pool.rule)
        for source in pool.sources:
            fresh.add_metric([pool.name, source.name], source.is_fresh)
            if source.age_seconds is not None:
                age.add_metric([pool.name, source.name], source.age_seconds)
    yield from (condition, rule, age, fresh)


def _both_axes(
    name: str, words: str, amounts: Sequence[tuple[list[str], Amount]], *labels: str
) -> Iterator[GaugeMetricFamily]:
    slots, tokens = (_gauge(f"{name}_{axis}", f"{words}, in {axis}.", *labels) for axis in ("slots", "tokens"))
    for values, amount in amounts:
        slots.add_metric(values, amount.slots)
        tokens.add_metric(values, amount.tokens)
    yield from (slots, tokens)


def _gauge(name: str, words: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"tickets_batch_pool_{name}", words, labels=["pool", *labels])
