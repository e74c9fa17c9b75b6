"""What the scheduler shows Prometheus: what it saw last, and nothing where it does not know."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from jobs.states import JobState
from jobs.store.batches import BatchWork
from jobs.store.forecasts import StoredForecast
from scheduler.batch_metrics import OpenBatches
from scheduler.capacity import Amount
from scheduler.metrics import BATCHES_SECONDS, POOLS_SECONDS, Metrics
from scheduler.pool_metrics import RULES
from scheduler.pool_reading import Condition
from tests.support.open_batch import FORECAST, WORK
from tests.support.readings import note, reading, snapshot, stale, waited
from tests.support.store import START


class Scene:
    """A scheduler's metrics with a clock of the test's."""

    def __init__(self) -> None:
        self.now = 100.0
        self.leads = True
        self.metrics = Metrics({"gpu": 0.8}, lambda: self.leads, lambda: self.now)

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"tickets_batch_{name}", labels)

    def labelled(self, name: str, label: str) -> Mapping[str, float]:
        """The samples of one metric by one of its labels."""
        found = (one for family in self.metrics.registry.collect() for one in family.samples)
        return {one.labels[label]: one.value for one in found if one.name == f"tickets_batch_{name}"}

    def show(self, work: BatchWork = WORK, *forecasts: StoredForecast) -> None:
        self.metrics.show_batches(OpenBatches([work], forecasts, workers=3))


def test_who_holds_what_of_a_pool() -> None:
    scene = Scene()
    held = snapshot(
        interactive=Amount(3, 700), batch=Amount(5, 900), reclaiming=Amount(1, 100), limit=Amount(9, 30_000)
    )
    scene.metrics.show_pools([reading(held)])
    assert scene.labelled("pool_in_flight_slots", "class") == {"interactive": 3, "batch": 5}
    assert scene.labelled("pool_in_flight_tokens", "class") == {"interactive": 700, "batch": 900}
    assert scene.value("pool_reclaiming_slots", pool="gpu") == 1
    assert (scene.value("pool_limit_slots", pool="gpu"), scene.value("pool_limit_tokens", pool="gpu")) == (9, 30_000)
    assert (scene.value("pool_floor_slots", pool="gpu"), scene.value("pool_capacity_slots", pool="gpu")) == (2, 20)


def test_what_the_chat_feels() -> None:
    scene = Scene()
    seconds = waited(0.1, 0.2, 0.3, 0.4, 2.0)
    scene.metrics.show_pools([reading(snapshot(recent=seconds, interactive_waiting=2, oldest_waiting_seconds=1.5))])
    assert scene.labelled("pool_chat_ttft_seconds", "quantile") == {"0.5": 0.3, "0.95": 2.0}
    assert scene.value("pool_chat_ttft_target_seconds", pool="gpu") == 0.8
    assert scene.value("pool_chat_waiting", pool="gpu") == 2
    assert scene.value("pool_chat_oldest_waiting_seconds", pool="gpu") == 1.5


def test_exactly_one_condition_and_one_rule_hold() -> None:
    scene = Scene()
    scene.metrics.show_pools([reading(snapshot(note=note("blind", is_blind=True, engine=None, ledger=7.0)))])
    conditions, rules = scene.labelled("pool_condition", "condition"), scene.labelled("pool_rule", "rule")
    assert [word for word, holds in conditions.items() if holds] == [Condition.BLIND]
    assert [word for word, holds in rules.items() if holds] == ["blind"]
    assert (set(conditions), set(rules)) == ({*Condition}, set(RULES))
    assert scene.labelled("pool_source_fresh", "source") == {"engine": 0, "ledger": 1}
    assert set(scene.labelled("pool_reading_age_seconds", "source")) == {"ledger"}


def test_a_pool_without_a_limit_in_force_is_stale() -> None:
    scene = Scene()
    scene.metrics.show_pools([reading(stale())])
    assert scene.value("pool_condition", pool="gpu", condition="stale") == 1


def test_counters_of_the_ledger_are_counters() -> None:
    scene = Scene()
    scene.metrics.show_pools([reading(snapshot(arrivals=40, refused=2, revoked=7))])
    names = ("chat_requests", "chat_refused", "revoked")
    assert [scene.value(f"pool_{name}_total", pool="gpu") for name in names] == [40, 2, 7]


def test_where_a_batch_stands() -> None:
    scene = Scene()
    scene.show(WORK, FORECAST)
    jobs = {"pending": 4, "running": 1, "succeeded": 3, "failed": 2, "expired": 0, "cancelled": 0}
    assert scene.labelled("batch_jobs", "state") == jobs
    assert set(jobs) == {*JobState}
    assert scene.labelled("batch_tokens", "kind") == {"prompt": 900, "completion": 90, "wasted": 30}
    assert scene.value("batch_deadline_timestamp_seconds", batch="batch_1") == (START + timedelta(hours=1)).timestamp()
    assert scene.value("scheduler_workers") == 3


def test_what_is_foreseen_of_a_batch() -> None:
    scene = Scene()
    scene.show(WORK, FORECAST)
    paces = scene.labelled("batch_pace", "pace")
    assert paces == {"guaranteed": 0, "on_track": 0, "at_risk": 1, "will_miss": 0}
    assert scene.value("batch_needed_tokens_per_second", batch="batch_1") == 0.5
    assert scene.value("batch_tokens_per_second", batch="batch_1") is None
    assert set(scene.labelled("batch_done_timestamp_seconds", "quantile")) == {"0.5"}


def test_a_blocked_batch_is_shown_though_nothing_is_foreseen_of_it() -> None:
    scene = Scene()
    scene.show(replace(WORK, blocked="401 from the model"))
    assert scene.value("batch_blocked", batch="batch_1") == 1
    assert scene.labelled("batch_pace", "pace") == {}


def test_a_scheduler_that_stands_by_shows_nothing_of_batches_and_pools() -> None:
    scene = Scene()
    scene.show(WORK, FORECAST)
    scene.metrics.show_pools([reading()])
    scene.leads = False
    assert scene.value("scheduler_leads") == 0
    assert scene.labelled("pool_limit_slots", "pool") == {}
    assert scene.labelled("batch_blocked", "batch") == {}
    assert scene.value("scheduler_workers") is None


def test_what_was_read_long_ago_is_not_shown() -> None:
    scene = Scene()
    scene.show()
    scene.metrics.show_pools([reading()])
    scene.now += POOLS_SECONDS
    assert scene.labelled("pool_limit_slots", "pool") == {}
    assert scene.value("batch_blocked", batch="batch_1") == 0
    scene.now += BATCHES_SECONDS
    assert scene.value("batch_blocked", batch="batch_1") is None
