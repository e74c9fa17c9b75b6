"""What `status` says of a batch that does not come along, or ended without an answer: nothing better than it is."""

from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest

from jobs.outcomes import Requeued, Symptom
from jobs.store import batches, events, forecasts, moves
from jobs.store.batches import Batch
from jobs.store.database import Database
from jobs.store.events import EventKind
from jobs.store.forecasts import StoredForecast
from tests.support.store import START, ManualClock, attempt, claim, finish, submit, succeed
from tickets_batch.cli.ending import blocked_to_the_end, ending_in_words
from tickets_batch.cli.live.lines import in_words
from tickets_batch.cli.live.look import Look
from tickets_batch.cli.prospect import Prospect
from tickets_batch.cli.silence import silence_in_words
from tickets_batch.cli.text import Surroundings, batch_in_words, batches_in_words

BERLIN = ZoneInfo("Europe/Berlin")
WHY = "HTTP 404: the model 'qwen' does not exist"


def words(store: Database, batch: Batch) -> str:
    around = Surroundings(
        Prospect.of(store, batch),
        {},
        "away",
        {},
        [],
        silence=silence_in_words(store, batch),
        was_blocked=blocked_to_the_end(store, batch),
    )
    return " ".join(batch_in_words(batch, around, BERLIN, store.now()).split())


def block(store: Database, batch_id: str) -> None:
    finish(store, claim(store, batch_id, 1), Requeued(blocked=WHY))


def expire(store: Database, clock: ManualClock) -> None:
    clock.advance(3_601)
    moves.expire_overdue(store)


def due(store: Database, tickets: int = 3) -> str:
    return submit(store, tickets, deadline_at=store.now() + timedelta(hours=1)).batch_id


def look_for(store: Database, clock: ManualClock, batch_id: str, seconds: int) -> None:
    """A scheduler forecasts every ten seconds for so long."""
    for _ in range(seconds // 10):
        clock.advance(10)
        left = batches.get(store, batch_id).pending
        forecasts.record(
            store,
            StoredForecast(batch_id, clock(), left, 500 * left, None, None, None, None, None, None, None, None, None),
        )


class TestBlockedToTheEnd:
    def test_the_end_says_why_nothing_was_done(self, store: Database, store_clock: ManualClock) -> None:
        batch_id = due(store)
        block(store, batch_id)
        events.record(store, EventKind.PACE, batch_id, to="at_risk")
        expire(store, store_clock)
        ended = batches.get(store, batch_id)
        assert ended.state.value == "expired"
        assert f"3 expired blocked to the end: {WHY}" in words(store, ended)
        assert f"3 expired in 1 h 0 min; blocked to the end: {WHY}; tickets" in ending_in_words(
            ended, blocked_to_the_end(store, ended)
        )

    def test_one_that_went_on_was_not(self, store: Database, store_clock: ManualClock) -> None:
        batch_id = due(store)
        block(store, batch_id)
        store_clock.advance(6)
        succeed(store, claim(store, batch_id, 1))
        expire(store, store_clock)
        assert "blocked" not in words(store, batches.get(store, batch_id))

    def test_nor_is_a_block_that_an_earlier_end_has_taken_away(self, store: Database, store_clock: ManualClock) -> None:
        batch_id = due(store)
        block(store, batch_id)
        expire(store, store_clock)
        moves.retry(store, batch_id, None)
        assert "to the end" not in words(store, batches.get(store, batch_id))
        succeed(store, claim(store, batch_id))
        assert "blocked" not in words(store, batches.get(store, batch_id))

    def test_a_cancelled_one_says_so_too(self, store: Database) -> None:
        batch_id = due(store)
        block(store, batch_id)
        moves.cancel(store, batch_id)
        assert f"to the end: {WHY}" in words(store, batches.get(store, batch_id))


class TestSilence:
    def test_without_a_deadline_it_says_for_how_long_and_why(self, store: Database, store_clock: ManualClock) -> None:
        batch_id = submit(store, 10).batch_id
        look_for(store, store_clock, batch_id, 300)
        made = attempt(Symptom.OVERLOADED, http_status=503, started_at=store_clock())
        finish(store, claim(store, batch_id, 1), Requeued(), made)
        assert "no answer for 5 min: the model answers 503" in words(store, batches.get(store, batch_id))

    @pytest.mark.parametrize(
        ("symptom", "said"),
        [
            (Symptom.UNREACHABLE, "the endpoint cannot be reached"),
            (Symptom.WITHDRAWN, "what was begun was asked back for the chat"),
            (Symptom.INVALID_OUTPUT, "calls end as invalid_output"),
        ],
    )
    def test_each_cause_has_words(self, store: Database, store_clock: ManualClock, symptom: Symptom, said: str) -> None:
        batch_id = submit(store, 10).batch_id
        look_for(store, store_clock, batch_id, 120)
        finish(store, claim(store, batch_id, 1), Requeued(), attempt(symptom, started_at=store_clock()))
        assert f"no answer for 2 min: {said}" in words(store, batches.get(store, batch_id))

    def test_nobody_and_nothing(self, store: Database, store_clock: ManualClock) -> None:
        batch_id = submit(store, 10).batch_id
        look_for(store, store_clock, batch_id, 120)
        assert "no answer for 2 min: no worker has taken one" in words(store, batches.get(store, batch_id))
        claim(store, batch_id, 1)
        assert "no answer for 2 min: no call to the model has ended" in words(store, batches.get(store, batch_id))

    def test_it_begins_anew_with_an_answer_and_after_a_gap(self, store: Database, store_clock: ManualClock) -> None:
        batch_id = submit(store, 10).batch_id
        look_for(store, store_clock, batch_id, 300)
        succeed(store, claim(store, batch_id, 1))
        look_for(store, store_clock, batch_id, 60)
        assert "no answer" not in words(store, batches.get(store, batch_id))
        store_clock.advance(600)  # paused, say
        look_for(store, store_clock, batch_id, 60)
        assert "no answer" not in words(store, batches.get(store, batch_id))

    def test_who_waits_for_another_and_who_is_paused_is_not_silent(
        self, store: Database, store_clock: ManualClock
    ) -> None:
        first, second = due(store), submit(store, 10, source_key="other.csv").batch_id
        look_for(store, store_clock, second, 120)
        assert "no answer" not in words(store, batches.get(store, second))
        moves.pause(store, first)
        assert "no answer" in words(store, batches.get(store, second))
        moves.pause(store, second)
        assert "no answer" not in words(store, batches.get(store, second))

    def test_before_its_time_a_batch_is_not_silent(self, store: Database, store_clock: ManualClock) -> None:
        batch_id = submit(store, 10, not_before=START + timedelta(seconds=300)).batch_id
        look_for(store, store_clock, batch_id, 320)
        assert "no answer" not in words(store, batches.get(store, batch_id))


def test_a_paused_batch_is_not_done_at_any_rate(store: Database, store_clock: ManualClock) -> None:
    batch_id = submit(store, 10).batch_id
    held = claim(store, batch_id, 5)
    store_clock.advance(10)
    succeed(store, held)
    assert "done at" in words(store, batches.get(store, batch_id))
    moves.pause(store, batch_id)
    assert "done at" not in words(store, batches.get(store, batch_id))


def test_what_nobody_answered_is_not_done(store: Database, store_clock: ManualClock) -> None:
    expired = due(store)
    expire(store, store_clock)
    cancelled = submit(store, 2, source_key="other.csv").batch_id
    moves.cancel(store, cancelled)
    found = [batches.get(store, batch_id) for batch_id in (expired, cancelled)]
    _, *lines = batches_in_words(found, BERLIN).splitlines()
    assert [line.split()[3:8] for line in lines] == [["0", "of", "3", "0", "3"], ["0", "of", "2", "0", "0"]]
    assert in_words(Look(found[0], store.now()), BERLIN) == "0 of 3 done, 0 failed, 3 expired, expired"
