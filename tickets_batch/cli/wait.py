"""Waiting for a batch to end, and saying why it does not."""

import time
from collections.abc import Iterator
from dataclasses import replace

from jobs.store.batches import Batch
from jobs.store.database import Database
from jobs.store.errors import StoreUnavailable
from scheduler.pool_reading import Condition
from tickets_batch.cli.database_file import DatabaseFile
from tickets_batch.cli.ledgers import Ledgers
from tickets_batch.cli.live.display import Display, display
from tickets_batch.cli.live.look import Look
from tickets_batch.cli.live.watch import Watch
from tickets_batch.errors import UserError
from tickets_batch.settings import Settings

POLL_SECONDS = 0.5
NEEDED = ("scheduler", "worker")
UNNOTICED_SECONDS = 10.0  # services that start are not reported missing for so long, nor what they have yet to read
GONE_SECONDS = 60.0  # after so long without a scheduler or a worker of others there is nothing to wait for
START_THEM = "tickets-batch up starts all that is needed"
BLOCKED_SECONDS = 120.0  # so long a blocked batch without a deadline may take to heal by itself


class NobodyWorks(UserError):
    """A batch that nobody works on: the message says which service is missing and how to start it."""


def follow_to_its_end(db: Database, batch_id: str, ledgers: Ledgers, settings: Settings) -> Batch:
    """Show how the batch comes along, however long it takes, whoever works on it; the batch when it has ended."""
    with display(settings.zone) as shown:
        return Waiting(db, batch_id, ledgers, settings, shown, remedy=START_THEM).until_it_ends()


class Waiting:
    """Watches one batch on a display; `remedy` is what a person can do when no scheduler or no worker is alive.

    If it `gives_up`, it does so after a minute without one of these. In any case it leaves a batch that has been
    blocked for two minutes and has no deadline: it may never heal, and the exit code says so. `file` is where the
    database was when it was opened, if that was earlier.
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
        file: DatabaseFile | None = None,
    ) -> None:
        self._file = file or DatabaseFile(db)
        self._watch = Watch(db, batch_id, ledgers, settings)
        self._shown = shown
        self._remedy = remedy
        self._gives_up = gives_up
        self._away = ""
        self._began = time.monotonic()
        self._missing_since: float | None = None
        self._blocked_since: float | None = None

    def until_it_ends(self) -> Batch:
        """The batch when it has ended, or is to be left blocked. Raises NobodyWorks, DatabaseGone."""
        while True:
            started = time.monotonic()
            batch = self._look()
            if batch is not None and (batch.state.is_final or self._is_stuck(batch)):
                return batch
            time.sleep(max(0.0, POLL_SECONDS - (time.monotonic() - started)))

    def _look(self) -> Batch | None:
        """Show the batch as it is now, or as it was last while the database is away; None then."""
        self._file.require()
        try:
            look = self._watch.look()
        except StoreUnavailable as error:
            self._show_without_database(f"{error}; waiting for it")
            return None
        self._away = ""
        self._shown.show(replace(look, notes=tuple(self._notes(look))))
        return look.batch

    def _show_without_database(self, why: str) -> None:
        if look := self._watch.last():
            self._shown.show(replace(look, notes=(why,)))
        elif why != self._away:
            self._shown.say(why)
        self._away = why

    def _notes(self, look: Look) -> Iterator[str]:
        """What is amiss, a line each."""
        if look.batch.state.is_final:
            return
        if look.why_away:
            yield look.why_away
        if look.batch.blocked:
            yield f"blocked: {look.batch.blocked}; goes on by itself when that works, or mend it here and submit again"
        for pool in look.pools:
            if pool.reading is not None and pool.reading.condition is Condition.BLIND and self._is_settled:
                yield f"pool {pool.name}: {pool.reading.reason}"
        yield from self._missing_services(look)

    @property
    def _is_settled(self) -> bool:
        """Whether services that have just started have had the time for a first reading of the chat."""
        return time.monotonic() - self._began > UNNOTICED_SECONDS

    def _missing_services(self, look: Look) -> Iterator[str]:
        """Raises NobodyWorks."""
        alive = {service.role for service in look.at_work}
        missing = [role for role in NEEDED if role not in alive]
        if not missing:
            self._missing_since = None
            return
        if self._missing_since is None:
            self._missing_since = time.monotonic()
        missing_seconds = time.monotonic() - self._missing_since
        what = f"no {' and no '.join(missing)} is alive"
        if self._gives_up and missing_seconds > GONE_SECONDS:
            raise NobodyWorks(f"{what}: {self._remedy}; {look.batch.id} is saved and goes on when they run")
        if missing_seconds > UNNOTICED_SECONDS:
            yield f"{what}, still waiting: {self._remedy}"

    def _is_stuck(self, batch: Batch) -> bool:
        if not batch.blocked or batch.deadline_at is not None:
            self._blocked_since = None
            return False
        if self._blocked_since is None:
            self._blocked_since = time.monotonic()
        return time.monotonic() - self._blocked_since > BLOCKED_SECONDS
