"""What the scheduler shows Prometheus of each open batch: where it stands, and what is foreseen."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily, Metric

from jobs.states import JobState
from jobs.store.batches import BatchWork
from jobs.store.forecasts import StoredForecast
from scheduler.pace import Pace


@dataclass(frozen=True, slots=True)
class OpenBatches:
    """All batches that have not ended, the newest forecast of each that has one, and who is there to work on them."""

    works: Sequence[BatchWork]
    forecasts: Sequence[StoredForecast]
    workers: int


def batch_families(seen: OpenBatches | None) -> Iterator[Metric]:
    """The metrics of what was seen; without it their names alone."""
    works = seen.works if seen else ()
    jobs = _gauge("jobs", "Tickets by their state.", "state")
    blocked = _gauge("blocked", "1 while no ticket of it can succeed: a wrong key, a wrong model, no server.")
    deadline = _gauge("deadline_timestamp_seconds", "Its deadline, if it has one.")
    tokens = _gauge("tokens", "Tokens of all calls, by kind; wasted ones were withdrawn before their answer.", "kind")
    for work in works:
        for state in JobState:
            jobs.add_metric([work.id, state.value], getattr(work, state.value))
        blocked.add_metric([work.id], work.blocked is not None)
        if work.deadline_at is not None:
            deadline.add_metric([work.id], work.deadline_at.timestamp())
        kinds = {"prompt": work.prompt_tokens, "completion": work.completion_tokens, "wasted": work.wasted_tokens}
        for kind, count in kinds.items():
            tokens.add_metric([work.id, kind], count)
    yield from (jobs, blocked, deadline, tokens)
    yield from _foreseen(seen.forecasts if seen else ())
    workers = GaugeMetricFamily("tickets_batch_scheduler_workers", "Worker processes heard of in the last ten seconds.")
    if seen is not None:
        workers.add_metric([], seen.workers)
    yield workers


def _foreseen(forecasts: Sequence[StoredForecast]) -> Iterator[Metric]:
    pace = _gauge("pace", "1 for the pace at which the batch is, 0 for the others.", "pace")
    left = _gauge("tokens_left", "Work left, in tokens.")
    achieved = _gauge("tokens_per_second", "The rate of late.")
    needed = _gauge("needed_tokens_per_second", "The rate that ends at the deadline.")
    done_at = _gauge("done_timestamp_seconds", "When it will be done: p50 and p90.", "quantile")
    for one in forecasts:
        for word in Pace:
            pace.add_metric([one.batch_id, word.value], word == one.pace)
        left.add_metric([one.batch_id], one.tokens_left)
        for family, labels, value in (
            (achieved, [], one.achieved_rate),
            (needed, [], one.needed_rate),
            (done_at, ["0.5"], _seconds(one.p50_at)),
            (done_at, ["0.9"], _seconds(one.p90_at)),
        ):
            if value is not None:
                family.add_metric([one.batch_id, *labels], value)
    yield from (pace, left, achieved, needed, done_at)


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _gauge(name: str, words: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"tickets_batch_batch_{name}", words, labels=["batch", *labels])
