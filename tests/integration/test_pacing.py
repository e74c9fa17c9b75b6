"""Pacing on real databases: what is observed, what is kept, who is told, and what another scheduler takes over."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from jobs.outcomes import Requeued, Symptom
from jobs.store import batches, curves, events, forecasts, moves, samples
from jobs.store.database import Database
from jobs.store.events import EventKind
from jobs.store.forecasts import StoredForecast
from scheduler.capacity import Amount
from scheduler.curve import Curve, Step
from scheduler.forecast import Forecast
from scheduler.paced_pools import PacedPools
from scheduler.pacing import Pacing
from scheduler.work import Work
from tests.support.readings import BERLIN, CAPACITY, reading, snapshot
from tests.support.samples import SAMPLE
from tests.support.store import START, ManualClock, attempt, claim, finish, submit, succeed
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

    def refuse(self, batch_id: str, seconds: float) -> None:
        """Let time pass in which the engine answers 503 to whatever is asked."""
        for _ in range(round(seconds / LOOK_SECONDS)):
            self.clock.advance(LOOK_SECONDS)
            made = attempt(Symptom.OVERLOADED, http_status=503, started_at=self.clock(), ttft_seconds=None)
            finish(self.store, claim(self.store, batch_id, 2), Requeued(), made)
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


def test_an_engine_that_never_answers_is_told_before_the_deadline(
    night: Night, caplog: pytest.LogCaptureFixture
) -> None:
    batch = night.submit(400, minutes=4)
    night.look()
    night.refuse(batch, seconds=230)
    assert night.paces_told()[0][0] is None
    assert night.paces_told()[-1][1] == "will_miss"
    first = night.told[0]
    assert first["reason"] == "no ticket was answered for 2 min: the model answers 503"
    assert first["at"] <= "2026-11-30T22:02:30+00:00"  # while there is time to act
    found = [event for event in events.recent(night.store, batch) if event.kind == EventKind.PACE]
    assert found[-1].detail["reason"] == first["reason"]
    assert f"{batch} is will_miss: 400 jobs left" in caplog.text
    assert "the model answers 503" in caplog.text


def test_with_hours_left_a_silence_is_a_risk_first(night: Night) -> None:
    batch = night.submit(400, minutes=60)
    night.look()
    night.refuse(batch, seconds=110)
    assert night.told == []  # an engine may be loading
    night.refuse(batch, seconds=60)
    assert night.paces_told() == [(None, "at_risk")]


def test_what_a_pool_did_minutes_before_speaks_for_the_next_batch_until_it_is_silent(night: Night) -> None:
    before = night.submit(60, minutes=600)
    night.look()
    night.work(before, seconds=120, tickets_per_look=5)
    assert batches.get(night.store, before).state.is_final
    night.work(before, seconds=300, tickets_per_look=0)
    batch = night.submit(100, minutes=300, source_key="other.csv")
    night.refuse(batch, seconds=30)
    newest = forecasts.latest(night.store, batch)
    assert newest is not None
    assert newest.p90_at is not None
    assert newest.pace == "guaranteed"
    night.refuse(batch, seconds=330)
    assert night.pace(batch) == "at_risk"


def test_what_was_seen_long_ago_is_forgotten(night: Night) -> None:
    before = night.submit(60, minutes=600)
    night.look()
    night.work(before, seconds=120, tickets_per_look=5)
    night.work(before, seconds=10, tickets_per_look=0)
    night.clock.advance(3_700)
    night.look()
    batch = night.submit(100, minutes=300, source_key="other.csv")
    night.look()
    newest = forecasts.latest(night.store, batch)
    assert newest is not None
    assert newest.full_rate is None


def test_an_answer_ends_a_silence(night: Night) -> None:
    batch = night.submit(400, minutes=60)
    night.look()
    for _ in range(4):
        night.refuse(batch, seconds=100)
        night.work(batch, seconds=10, tickets_per_look=90)
    assert all("reason" not in change for change in night.told)


def test_neither_a_pause_nor_a_block_is_a_silence(night: Night) -> None:
    paused = night.submit(400, minutes=20)
    night.look()
    moves.pause(night.store, paused)
    night.work(paused, seconds=300, tickets_per_look=0)
    moves.resume(night.store, paused)
    finish(night.store, claim(night.store, paused, 1), Requeued(blocked="the key is wrong"))
    night.work(paused, seconds=300, tickets_per_look=0)
    assert night.told == []


def test_a_time_without_any_room_is_no_silence(night: Night) -> None:
    batch = night.submit(400, minutes=60)
    none = snapshot(limit=Amount(0, 0))
    bare = replace(CAPACITY, floor=Amount(0, 0))
    for _ in range(30):
        night.clock.advance(LOOK_SECONDS)
        night.pacing.note([reading(none, capacity=bare, at=night.clock())])
        night.pacing.look()
    assert night.pace(batch) is None


def test_who_waits_for_a_silent_batch_is_as_silent(night: Night) -> None:
    first = night.submit(400, minutes=60)
    night.submit(400, minutes=90, source_key="other.csv")
    night.look()
    night.refuse(first, seconds=200)
    assert night.paces_told() == [(None, "at_risk")] * 2
    assert [change["reason"] for change in night.told] == [
        "no ticket was answered for 3 min: the model answers 503",
        f"no ticket of {first}, for which it waits, was answered for 3 min: the model answers 503",
    ]


def test_without_a_worker_it_says_so(night: Night) -> None:
    batch = night.submit(400, minutes=4)
    night.look()
    night.work(batch, seconds=150, tickets_per_look=0)
    assert night.told[0]["reason"] == "no ticket was answered for 2 min: no worker has taken one"


def test_a_batch_whose_pools_are_gone_is_left_out(night: Night) -> None:
    batch = night.submit(10, minutes=60, pools=("other",))
    night.look()
    assert forecasts.of_batch(night.store, batch) == []


def test_what_another_saw_is_taken_in_once_and_never_what_was_seen_here(
    store: Database, store_clock: ManualClock
) -> None:
    looks = [START + timedelta(seconds=10 * number) for number in range(31)]
    samples.record(store, [replace(SAMPLE, at=at) for at in looks])
    made = [StoredForecast("b", at, 1, 90_000 - 1_000 * n, 100.0, *[None] * 8) for n, at in enumerate(looks)]
    store_clock.advance(200)
    pools = PacedPools(store, [GPU], BERLIN, 500.0)
    now = store_clock.advance(100)

    def foreseen() -> Forecast:
        return pools.forecast(now, Work(50_000.0), None)

    pools.restore("b", made[20:])
    assert foreseen().achieved_rate is None  # all of it was seen here, or would have been
    pools.restore("b", made)
    once = foreseen()
    assert once.achieved_rate == pytest.approx(100.0)
    pools.restore("b", made)
    assert foreseen() == once
