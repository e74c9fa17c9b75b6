"""What is kept for the pace of a batch: its forecasts, the pools' curves, and who is served before it."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import delete

from jobs.store import batches, curves, forecasts, moves
from jobs.store.curves import StoredCurve
from jobs.store.database import Database
from jobs.store.forecasts import StoredForecast
from jobs.tables import batches as batches_table
from tests.support.store import START, ManualClock, claim, submit, succeed

UNKNOWN = StoredForecast(
    batch_id="",
    at=START,
    jobs_left=3,
    tokens_left=1_500,
    achieved_rate=None,
    needed_rate=None,
    floor_rate=None,
    full_rate=None,
    chat_slots=None,
    p50_at=None,
    p90_at=None,
    floor_at=None,
    pace=None,
)


def known(batch: str, seconds: float) -> StoredForecast:
    return StoredForecast(
        batch_id=batch,
        at=START + timedelta(seconds=seconds),
        jobs_left=2,
        tokens_left=5_000_000_000,
        achieved_rate=901.5,
        needed_rate=700.0,
        floor_rate=120.25,
        full_rate=2_000.0,
        chat_slots=3.5,
        p50_at=START + timedelta(hours=2),
        p90_at=START + timedelta(hours=3),
        floor_at=START + timedelta(hours=20),
        pace="on_track",
    )


class TestForecasts:
    def test_they_come_back_as_they_were_in_the_order_in_which_they_were_made(self, store: Database) -> None:
        batch, other = submit(store, 1).batch_id, submit(store, 1, source_key="other").batch_id
        made = [replace(UNKNOWN, batch_id=batch), known(batch, 10), known(batch, 20)]
        for row in (made[2], made[0], known(other, 30), made[1]):
            forecasts.record(store, row)

        assert forecasts.of_batch(store, batch) == made
        assert forecasts.latest(store, batch) == made[2]

    def test_before_the_first_there_is_none(self, store: Database) -> None:
        batch = submit(store, 1).batch_id

        assert forecasts.latest(store, batch) is None
        assert forecasts.of_batch(store, batch) == []

    def test_they_go_with_their_batch(self, store: Database) -> None:
        batch = submit(store, 1).batch_id
        forecasts.record(store, known(batch, 0))

        with store.begin() as connection:
            connection.execute(delete(batches_table))

        assert forecasts.of_batch(store, batch) == []


class TestCurves:
    def test_the_newest_of_a_pool_holds(self, store: Database, store_clock: ManualClock) -> None:
        curves.save(store, "gpu", "qwen", {"steps": [1]})
        curves.save(store, "gpu", "qwen", {"steps": [1, 2.5], "note": "ä"})
        curves.save(store, "cpu", "tiny", {})

        assert curves.latest(store, "gpu") == StoredCurve("gpu", "qwen", START, {"steps": [1, 2.5], "note": "ä"})
        store_clock.advance(60)
        made = curves.save(store, "gpu", "qwen3", {"steps": []})
        assert made.measured_at == store_clock()
        assert curves.latest(store, "gpu") == made

    def test_of_a_pool_that_was_never_measured_there_is_none(self, store: Database) -> None:
        assert curves.latest(store, "gpu") is None


class TestWhoIsServedBefore:
    def soon(self, store: Database, name: str, hours: float | None, **more: object) -> str:
        deadline = None if hours is None else store.now() + timedelta(hours=hours)
        return submit(store, 1, source_key=name, deadline_at=deadline, **more).batch_id

    def ahead(self, store: Database, batch: str) -> list[str]:
        return [work.id for work in batches.ahead_of(store, batch)]

    def test_the_nearest_deadline_then_age(self, store: Database, store_clock: ManualClock) -> None:
        never = self.soon(store, "never", None)
        store_clock.advance(1)
        late = self.soon(store, "late", 9)
        store_clock.advance(1)
        soon = self.soon(store, "soon", 3)
        store_clock.advance(1)
        never_younger = self.soon(store, "younger", None)

        assert self.ahead(store, soon) == []
        assert self.ahead(store, late) == [soon]
        assert self.ahead(store, never_younger) == [soon, late, never]
        assert [work.id for work in batches.runnable(store)] == [soon, late, never, never_younger]

    def test_only_what_shares_a_pool_is_before_another(self, store: Database) -> None:
        first = self.soon(store, "first", 1, pools=("gpu",))
        both = self.soon(store, "both", 2, pools=("gpu", "deep"))
        deep = self.soon(store, "deep", 3, pools=("deep",))
        other = self.soon(store, "other", 4, pools=("other",))

        assert [self.ahead(store, batch) for batch in (first, both, deep, other)] == [[], [first], [both], []]

    @pytest.mark.parametrize("reason", ["paused", "done", "past", "not yet", "all in flight"])
    def test_only_what_is_served_now_is_before_another(
        self, store: Database, store_clock: ManualClock, reason: str
    ) -> None:
        begins = {"not_before": store.now() + timedelta(minutes=90)} if reason == "not yet" else {}
        first, second = self.soon(store, "first", 2, **begins), self.soon(store, "second", 9)
        if reason == "paused":
            moves.pause(store, first)
        elif reason == "done":
            succeed(store, claim(store, first))
        elif reason == "past":
            store_clock.advance(2 * 3600)
        elif reason == "all in flight":
            claim(store, first)

        assert self.ahead(store, second) == []
        assert [work.id for work in batches.runnable(store)] == [second]
        if reason == "not yet":
            store_clock.advance(90 * 60)
            assert self.ahead(store, second) == [first]

    def test_one_that_is_paused_itself_has_its_place(self, store: Database) -> None:
        first, second = self.soon(store, "first", 2), self.soon(store, "second", 9)
        moves.pause(store, second)

        assert self.ahead(store, second) == [first]

    def test_none_is_before_one_that_has_ended_or_is_not_there(self, store: Database) -> None:
        self.soon(store, "first", 2)
        second = self.soon(store, "second", 9)
        succeed(store, claim(store, second))

        assert self.ahead(store, second) == []
        assert self.ahead(store, "batch_none") == []
