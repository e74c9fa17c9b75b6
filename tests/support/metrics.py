"""Every metric that the services show, with every label it can have: what rules, dashboards and pages may name."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import cast

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from gateway.door import Door
from gateway.metrics import Metrics as GatewayMetrics
from gateway.outcome import Outcome
from jobs.job import Finish, Job
from jobs.outcomes import Attempt, Cancelled, Expired, Failed, Requeued, Succeeded, Symptom, Usage
from scheduler.batch_metrics import OpenBatches
from scheduler.metrics import Metrics as SchedulerMetrics
from scheduler.webhook import Webhook
from tests.support.open_batch import FORECAST, WORK
from tests.support.readings import note, reading, snapshot, waited
from tests.support.shift import pool_settings
from tests.support.store import START
from workers.client import ModelClient
from workers.endpoint import Endpoint
from workers.gate import Gate
from workers.metrics import Held
from workers.metrics import Metrics as WorkerMetrics

JOB = Job(7, "batch_1", "T-7", "about a parcel", "Where is it?", 0, 0, 0, False, "token", START)
PARTS = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
OPEN = {"pool", "batch", "source", "le"}  # labels whose values are not the product's


@dataclass(frozen=True, slots=True)
class Known:
    """A metric as it is shown; `labels` with the values that each may have, `series` its names in a query."""

    name: str
    series: tuple[str, ...]
    labels: Mapping[str, frozenset[str]]


def known_metrics() -> dict[str, Known]:
    """All of a scheduler, a worker and a gateway, by the name that the pages use."""
    found = [_known(family) for page in (_scheduler(), _worker(), _gateway()) for family in page.collect()]
    return {one.name: one for one in found}


def known_series() -> dict[str, Known]:
    """The same by every name that a query may use."""
    return {series: one for one in known_metrics().values() for series in one.series}


def _known(family: Metric) -> Known:
    labels = defaultdict(set)
    for sample in family.samples:
        for label, value in sample.labels.items():
            labels[label].add(value)
    name = f"{family.name}_total" if family.type == "counter" else family.name
    series = tuple(f"{family.name}{part}" for part in PARTS[family.type])
    return Known(name, series, {label: frozenset(values) for label, values in labels.items()})


def _scheduler() -> CollectorRegistry:
    metrics = SchedulerMetrics({"gpu": 0.8}, lambda: True)
    metrics.registry.register(Webhook(None).alerts)
    metrics.show_pools([reading(snapshot(recent=waited(0.1), note=note(ledger=0.5)))])
    metrics.show_batches(OpenBatches([WORK], [replace(FORECAST, achieved_rate=1.0, p90_at=START)], workers=1))
    return metrics.registry


def _worker() -> CollectorRegistry:
    endpoint = Endpoint(pool_settings("http://127.0.0.1:9/v1"), cast(ModelClient, None), cast(Gate, None))
    endpoint.estimator.learn(40, 10, 10)
    metrics = WorkerMetrics({"gpu": endpoint}, lambda: Held({"gpu": 1}, 0, 0))
    for symptom in (None, *Symptom):
        metrics.note(Finish(JOB, Succeeded("billing"), Attempt(START, 1.0, "gpu", "m", Usage(), 0.1, symptom)))
    for outcome in (Failed("invalid_output"), Requeued(), Requeued(is_yield=True), Expired(), Cancelled()):
        metrics.note(Finish(JOB, outcome, Attempt(START, 1.0, "gpu", "m")))
    return metrics.registry


def _gateway() -> CollectorRegistry:
    metrics = GatewayMetrics()
    metrics.watch("gpu", cast(Door, SimpleNamespace(in_flight=0, waiting=0, is_away=False)))
    for outcome in Outcome:
        metrics.count(outcome)
    return metrics.registry
