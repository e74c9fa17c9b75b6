"""A night in small steps: each is one transaction or one call of a script, done to the real thing and to the model.

Between any two steps of a process others may do theirs, so every interleaving at that grain is a night.
"""

from contextlib import nullcontext
from datetime import timedelta
from functools import partial

import pytest

from jobs.states import BatchState, JobState
from jobs.store import moves
from scheduler.control import LIMIT_SECONDS
from scheduler.permit import Ask, Kind, Permit
from tests.model.house import SCHEDULERS, WORKERS, nth
from tests.model.leading import SchedulersAtWork
from tests.model.permits import CAPACITY, LEASE_MS
from tests.model.reference import RETRIABLE
from tests.model.working import WorkersAtWork
from tests.support.store import assert_consistent
from tickets_batch.errors import UserError

ROUND_SECONDS = 5.0
ROUNDS = 250  # of everyone, by the end of which nothing may be left to do
MOVABLE = {
    "pause": ((BatchState.RUNNING,), BatchState.PAUSED),
    "resume": ((BatchState.PAUSED,), BatchState.RUNNING),
    "cancel": ((BatchState.RUNNING, BatchState.PAUSED, BatchState.CANCELLING), BatchState.CANCELLING),
}


class Night(WorkersAtWork, SchedulersAtWork):
    """Workers and schedulers, the chat, a person, and the end of it all."""

    # --- chat

    def chat_asks(self, tokens: int) -> None:
        """Chat is refused only for what chat itself holds."""
        ask = Ask(tokens, 100)
        held = self.permits.book.snapshot(self.permits.now_ms).interactive
        has_room = (held + ask.amount).fits(CAPACITY.most_interactive)
        answer = self.permits.acquire(self.chat.ledger, Kind.INTERACTIVE, ask)
        assert has_room is isinstance(answer, Permit), "chat's own share is not chat's"
        if isinstance(answer, Permit):
            self.chat.permits.append(answer)

    def chat_hears(self, which: int) -> None:
        if permit := nth(self.chat.permits, which):
            self.permits.first_token(self.chat.ledger, permit)

    def chat_ends(self, which: int) -> None:
        if permit := nth(self.chat.permits, which):
            self.chat.permits.remove(permit)
            self.permits.release(self.chat.ledger, permit)

    def chat_renews(self) -> None:
        self.permits.renew(self.chat.ledger, self.chat.permits)

    def kill_chat(self) -> None:
        self.chat.permits.clear()

    # --- a person

    def move(self, verb: str, which: int, *, killed: bool = False) -> None:
        """Pause, resume or cancel a batch; `killed`: the command dies between the batch and its jobs."""
        batch_id = self.batch_id(which)
        movable, becomes = MOVABLE[verb]
        is_legal = self.reference.move(batch_id, movable, becomes)
        act = partial(moves._move, self.person, batch_id, verb, movable, becomes) if killed else None
        with nullcontext() if is_legal else pytest.raises(UserError):
            (act or partial(getattr(moves, verb), self.person, batch_id))()
        if is_legal and verb == "cancel" and not killed:
            self.reference.cancel_waiting(batch_id)

    def retry(self, which: int, seconds: float) -> None:
        """One of the batches in which something failed or expired, or any where nothing did."""
        able = [n for n, batch_id in enumerate(self.reference.batches) if self.reference.of(batch_id, *RETRIABLE)]
        self.retry_batch(self.batch_id(able[which % len(able)] if able else which), seconds)

    def retry_batch(self, batch_id: str, seconds: float) -> None:
        self.pass_seconds(1.0)  # an end is told to the second: nobody asks, and is served, within the same
        deadline = self.person.now() + timedelta(seconds=seconds)
        again = self.reference.retry(batch_id, deadline)
        with nullcontext() if again else pytest.raises(UserError):
            assert moves.retry(self.person, batch_id, deadline) == len(again or ())
        self.retried.update(again or ())

    # --- the end

    def end(self) -> None:
        """Nobody dies any more: so everything ends, and nothing is left of it."""
        while self.chat.permits:
            self.chat_ends(0)
        for n, batch in enumerate(self.reference.batches.values()):
            if batch.state is BatchState.PAUSED:
                self.move("resume", n)
        self._work_to_the_end()
        for batch_id, batch in self.reference.batches.items():
            if batch.state is not BatchState.CANCELLED and self.reference.of(batch_id, *RETRIABLE):
                self.retry_batch(batch_id, seconds=10_000.0)
        self._work_to_the_end()
        for batch_id, batch in self.reference.batches.items():
            left = len(self.reference.of(batch_id, *(set(JobState) - {JobState.SUCCEEDED})))
            assert left == 0 or batch.state is BatchState.CANCELLED, "what was tried again was not done"
        for n in range(WORKERS):
            self.stop_worker(n)
        self.check()
        assert_consistent(self.person)
        self.pass_seconds(LEASE_MS / 1000)  # those who died give nothing back
        self.permits.assert_empty(self.late)
        self.assert_told()

    def _work_to_the_end(self) -> None:
        for _ in range(ROUNDS):
            self._everyone_works()
            self.check()
            if all(batch.state.is_final for batch in self.reference.batches.values()):
                break
            self.pass_seconds(ROUND_SECONDS)
        assert all(job.state.is_final for job in self.reference.jobs.values()), "a job was lost"
        assert all(batch.state.is_final for batch in self.reference.batches.values()), "a batch does not close"

    def _everyone_works(self) -> None:
        for n in range(SCHEDULERS):
            for act in (self.lead, self.reap, self.expire, self.tell, self.dispatch):
                act(n)
            self.publish(n, CAPACITY.most_batch, LIMIT_SECONDS)
        for n, worker in enumerate(self.workers):
            for act in (self.renew_leases, self.renew_permits, self.look):
                act(n)
            self.take(n, again=False)
            self.claim(n, 8)
            while self.admit(n):
                pass
            while worker.flights:
                self.land(n, 0, None)
            self.write(n, 32)
