"""Waiting for a batch to end, and saying why it does not."""

import time

from jobs.states import BatchState
from jobs.store import batches, services
from jobs.store.batches import Batch
from jobs.store.database import Database
from jobs.store.errors import StoreUnavailable
from scheduler.pool_reading import Condition
from tickets_batch.cli.ledgers import Ledgers
from tickets_batch.cli.text import state_in_words
from tickets_batch.cli.view import done
from tickets_batch.errors import UserError
from tickets_batch.progress import Display, Reading, display
from tickets_batch.settings import Settings

POLL_SECONDS = 0.5
NEEDED = ("scheduler", "worker")
UNNOTICED_SECONDS = 10.0  # services that start, or are started again, are not reported missing for so long
GONE_SECONDS = 60.0  # after so long without a scheduler or a worker of others there is nothing to wait for
START_THEM = "tickets-batch up starts all that is needed"
BLOCKED_SECONDS = 120.0  # so long a blocked batch without a deadline may take to heal by itself


class NobodyWorks(UserError):
    """A batch that nobody works on: the message says which service is missing and how to start it."""


def follow_to_its_end(db: Database, batch_id: str, ledgers: Ledgers, settings: Settings) -> Batch:
    """Show how the batch comes along, however long it takes, whoever works on it; the batch when it has ended."""
    with display() as shown:
        return Waiting(db, batch_id, ledgers, settings, shown, remedy=START_THEM).until_it_ends()


class Waiting:
    """Watches one batch on a display; `remedy` is what a person can do when no scheduler or no worker is alive.

    If it `gives_up`, it does so after a minute without one of these. In any case it leaves a batch that has been
    blocked for two minutes and has no deadline: it may never heal, and the exit code says so.
    """

    def __init__(
        self,
        db: Database,
        batch_id: str,
        ledgers: Ledgers,
        settings: Settings,
        shown: Display,
        *,
        remedy: str,
        gives_up: bool = False,
    ) -> None:
        self._db = db
        self._batch_id = batch_id
        self._ledgers = ledgers
        self._zone = settings.zone
        self._shown = shown
        self._remedy = remedy
        self._gives_up = gives_up
        self._last_said: dict[str, str] = {}
        self._missing_since: float | None = None
        self._blocked_since: float | None = None

    def until_it_ends(self) -> Batch:
        """The batch when it has ended, or is to be left blocked. Raises NobodyWorks."""
        while True:
            started = time.monotonic()
            try:
                batch = batches.get(self._db, self._batch_id)
                self._show(batch)
                if batch.state.is_final or self._is_stuck(batch):
                    return batch
                self._look_for_services(batch)
                self._say("database", "")
            except StoreUnavailable as error:
                self._say("database", f"{error}; waiting for it")
            time.sleep(max(0.0, POLL_SECONDS - (time.monotonic() - started)))

    def _show(self, batch: Batch) -> None:
        pools = self._ledgers.readings(self._db.now())
        ours = [pools[name] for name in batch.pools if name in pools]
        note = state_in_words(batch, self._zone, self._db.now())
        self._say("ledger", self._ledgers.why_away or "")
        self._say("blocked", f"blocked: {batch.blocked}; goes on by itself when that works" if batch.blocked else "")
        for pool in ours:
            is_blind = pool.condition is Condition.BLIND
            self._say(f"pool {pool.name}", f"pool {pool.name}: {pool.reason}" if is_blind else "")
        self._shown.show(
            Reading(
                total=batch.total,
                done=done(batch),
                failed=batch.failed,
                permits=sum(pool.snapshot.batch.slots for pool in ours) if ours else None,
                limit=sum(pool.limit.slots for pool in ours) if ours else None,
                chat=sum(pool.chat.slots for pool in ours),
                note="" if note == BatchState.RUNNING else note,
            )
        )

    def _is_stuck(self, batch: Batch) -> bool:
        if not batch.blocked or batch.deadline_at is not None:
            self._blocked_since = None
            return False
        if self._blocked_since is None:
            self._blocked_since = time.monotonic()
        return time.monotonic() - self._blocked_since > BLOCKED_SECONDS

    def _look_for_services(self, batch: Batch) -> None:
        alive = {service.role for service in services.alive(self._db)}
        missing = [role for role in NEEDED if role not in alive]
        if not missing:
            self._missing_since = None
            self._say("services", "")
            return
        if self._missing_since is None:
            self._missing_since = time.monotonic()
        missing_seconds = time.monotonic() - self._missing_since
        what = f"no {' and no '.join(missing)} is alive"
        if self._gives_up and missing_seconds > GONE_SECONDS:
            raise NobodyWorks(f"{what}: {self._remedy}; {batch.id} is saved and goes on when they run")
        if missing_seconds > UNNOTICED_SECONDS:
            self._say("services", f"{what}, still waiting: {self._remedy}")

    def _say(self, about: str, line: str) -> None:
        """Tell something once, until it changes; an empty line means that all is well again."""
        if line != self._last_said.get(about, ""):
            self._last_said[about] = line
            if line:
                self._shown.say(line)
