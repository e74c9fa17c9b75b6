"""Pacing on real databases: what is observed, what is kept, who is told, and what another scheduler takes over."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from jobs.outcomes import Requeued
from jobs.store import curves, events, forecasts, moves
from jobs.store.database import Database
from jobs.store.events import EventKind
from scheduler.capacity import Amount
from scheduler.curve import Curve, Step
from scheduler.pacing import Pacing
from tests.support.readings import BERLIN, reading, snapshot
from tests.support.store import START, ManualClock, claim, finish, submit, succeed
from tickets_batch.settings import Pool

pytestmark = pytest.mark.long

GPU = Pool.model_validate(
    {
        "name": "gpu",
        "base_url": "http://127.0.0.1:9/v1",
        "model": "qwen2.5-7b-instruct",
        "capacity": {"slots": 20, "tokens": 60_000},
        "protected": {"interactive": {"slots": 8, "tokens": 24_000}, "batch": {"slots": 2, "tokens": 6_000}},
        "signal": [{"type": "ledger"}],
    }
)
LOOK_SECONDS = 10.0
BUSY = snapshot(batch=Amount(8, 8_000), interactive=Amount(4, 4_000))


class Night:
    """A scheduler's pacing, and a worker that ends so many tickets between two looks."""

    def __init__(self, store: Database, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.told: list[Mapping[str, Any]] = []
        self.pacing = self.another_scheduler()

    def another_scheduler(self) -> Pacing:
        return Pacing(self.store, [GPU], BERLIN, self.told.append)

    def submit(self, tickets: int, minutes: float | None, **changed: Any) -> str:
        """A batch that is due in so many minutes."""
        deadline_at = None if minutes is None else self.clock() + timedelta(minutes=minutes)
        return submit(self.store, tickets, deadline_at=deadline_at, **changed).batch_id

    def work(self, batch_id: str, seconds: float, tickets_per_look: int) -> None:
        """Let time pass; each look follows what was done since the one before."""
        for _ in range(round(seconds / LOOK_SECONDS)):
            self.clock.advance(LOOK_SECONDS)
            if tickets_per_look:
                succeed(self.store, claim(self.store, batch_id, tickets_per_look))
            self.look()

    def look(self) -> None:
        self.pacing.note([reading(BUSY, at=self.clock())])
        self.pacing.look()

    def pace(self, batch_id: str) -> str | None:
        newest = forecasts.latest(self.store, batch_id)
        assert newest is not None
        return newest.pace

    def paces_told(self) -> list[Any]:
        return [(change["from"], change["to"]) for change in self.told]


@pytest.fixture
def night(store: Database, store_clock: ManualClock) -> Night:
    return Night(store, store_clock)


def test_every_look_keeps_a_forecast(night: Night) -> None:
    batch = night.submit(500, minutes=None)
    night.look()
    night.work(batch, seconds=300, tickets_per_look=5)
    made = forecasts.of_batch(night.store, batch)
    assert len(made) == 31
    assert [one.jobs_left for one in made] == [500, *range(495, 345, -5)]
    assert made[0].p50_at is None  # nothing is known yet
    last = made[-1]
    assert last.p50_at is not None
    assert last.p90_at is not None
    left_seconds = (last.p50_at - last.at).total_seconds()
    assert left_seconds == pytest.approx(350 / 0.5, rel=0.1)
    assert last.p50_at < last.p90_at
    assert last.achieved_rate == pytest.approx(0.5 * last.tokens_left / 350, rel=0.05)
    assert last.pace is None
    assert night.told == []


def test_a_change_of_pace_is_told_everywhere_and_once(night: Night) -> None:
    batch = night.submit(2_000, minutes=20)  # ten tickets a look would need two and a half times as long
    night.look()
    night.work(batch, seconds=120, tickets_per_look=10)
    assert night.pace(batch) == night.paces_told()[-1][1]
    assert night.pace(batch) in ("at_risk", "will_miss")
    found = [event for event in reversed(events.recent(night.store, batch)) if event.kind == EventKind.PACE]
    assert [(event.detail["from"], event.detail["to"]) for event in found] == night.paces_told()
    assert len(set(night.paces_told())) == len(night.told)
    change = night.told[-1]
    assert (change["event"], change["batch_id"]) == (EventKind.PACE, batch)
    assert change["deadline_at"] == "2026-11-30T22:20:00+00:00"


def test_work_that_the_floor_alone_would_do_is_guaranteed(night: Night) -> None:
    batch = night.submit(200, minutes=600)
    night.look()
    night.work(batch, seconds=120, tickets_per_look=5)
    assert night.pace(batch) == "guaranteed"
    newest = forecasts.latest(night.store, batch)
    assert newest is not None
    assert newest.floor_at is not None
    assert newest.floor_at < START + timedelta(minutes=600)


def test_what_is_paused_is_no_evidence(night: Night) -> None:
    batch = night.submit(500, minutes=None)
    night.look()
    night.work(batch, seconds=300, tickets_per_look=5)
    before = forecasts.latest(night.store, batch)
    moves.pause(night.store, batch)
    night.work(batch, seconds=600, tickets_per_look=0)
    assert forecasts.latest(night.store, batch) == before  # and nothing is foreseen meanwhile
    moves.resume(night.store, batch)
    night.work(batch, seconds=10, tickets_per_look=5)
    night.work(batch, seconds=10, tickets_per_look=5)
    after = forecasts.latest(night.store, batch)
    assert before is not None
    assert after is not None
    assert after.achieved_rate == pytest.approx(before.achieved_rate, rel=0.05)


def test_what_is_blocked_is_no_evidence(night: Night) -> None:
    batch = night.submit(500, minutes=None)
    night.look()
    night.work(batch, seconds=300, tickets_per_look=5)
    made = len(forecasts.of_batch(night.store, batch))
    finish(night.store, claim(night.store, batch, 1), Requeued(blocked="the key is wrong"))
    night.work(batch, seconds=300, tickets_per_look=0)
    assert len(forecasts.of_batch(night.store, batch)) == made


def test_a_top_up_is_not_taken_for_lost_work(night: Night) -> None:
    batch = night.submit(500, minutes=None)
    night.look()
    night.work(batch, seconds=300, tickets_per_look=5)
    assert night.submit(900, minutes=None) == batch
    night.work(batch, seconds=300, tickets_per_look=5)
    newest = forecasts.latest(night.store, batch)
    assert newest is not None
    assert newest.jobs_left == 900 - 300
    assert newest.achieved_rate == pytest.approx(0.5 * newest.tokens_left / newest.jobs_left, rel=0.05)


def test_the_second_in_line_is_done_after_the_first(night: Night) -> None:
    first = night.submit(400, minutes=60)
    second = night.submit(400, minutes=90, source_key="other.csv")
    night.look()
    night.work(first, seconds=300, tickets_per_look=5)
    found = [forecasts.latest(night.store, batch) for batch in (first, second)]
    seconds = [(one.p50_at - one.at).total_seconds() for one in found if one and one.p50_at]
    assert seconds == pytest.approx([250 / 0.5, 650 / 0.5], rel=0.1)
    assert found[1] is not None
    assert found[1].achieved_rate is None  # it is not its turn


def test_another_scheduler_takes_over_what_was_seen(night: Night) -> None:
    batch = night.submit(2_000, minutes=20)
    night.look()
    night.work(batch, seconds=200, tickets_per_look=10)
    before, told = forecasts.latest(night.store, batch), len(night.told)
    night.pacing = night.another_scheduler()
    night.work(batch, seconds=10, tickets_per_look=10)
    after = forecasts.latest(night.store, batch)
    assert before is not None
    assert after is not None
    assert after.pace == before.pace
    assert len(night.told) == told  # people know it already


def test_a_batch_that_ends_is_forgotten(night: Night) -> None:
    batch = night.submit(10, minutes=60)
    night.look()
    night.work(batch, seconds=10, tickets_per_look=10)
    made = len(forecasts.of_batch(night.store, batch))
    night.look()
    assert night.pacing.look() == []
    assert len(forecasts.of_batch(night.store, batch)) == made


def test_what_was_measured_before_speaks_from_the_first_look(night: Night) -> None:
    step = Step(12, 60.0, 60, 1.0, 500.0, 40.0, 12.0, 14.0)
    curves.save(night.store, "gpu", GPU.model, Curve((step,), 500.0, 40.0, 532, 600, "the source's").as_json())
    batch = night.submit(3_600, minutes=None)
    night.look()
    (only,) = forecasts.of_batch(night.store, batch)
    assert only.full_rate == pytest.approx(only.tokens_left / 3_600, rel=0.01)  # one ticket a second
    assert only.p50_at is not None


def test_a_batch_whose_pools_are_gone_is_left_out(night: Night) -> None:
    batch = night.submit(10, minutes=60, pools=("other",))
    night.look()
    assert forecasts.of_batch(night.store, batch) == []
