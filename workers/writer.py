"""The writer thread: what became of jobs goes to SQL several at a time, and never on the event loop."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from jobs.job import Finish, Job
from jobs.store import finishes
from jobs.store.database import Database
from jobs.store.errors import StoreConflict, StoreUnavailable

log = logging.getLogger(__name__)

MOST = 32  # finishes to a transaction
ENOUGH = 16  # not to wait for more: while they are written, as many can come in before admission has to wait
PATIENCE_SECONDS = 0.05  # how long the first of them waits for the others
AGAIN_SECONDS = 0.5


class Writer:
    """Writes finishes in the order in which they come; after a failure it tries for as long as the process lives.

    `let_go` is called on the writer's thread with the ids of jobs that are no longer this process's to hold: written,
    lost, or such that they cannot be written.
    """

    def __init__(self, db: Database, let_go: Callable[[Sequence[Job]], None]) -> None:
        self._db = db
        self._let_go = let_go
        self._queue: deque[Finish] = deque()
        self._changed = threading.Condition()
        self._is_closing = False
        self._put = 0
        self._done = 0
        self._give_up_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    @property
    def backlog(self) -> int:
        """Finishes not yet written: what a kill would repeat."""
        return self._put - self._done

    def put(self, finish: Finish) -> None:
        """Hand over one finish; returns at once."""
        with self._changed:
            self._put += 1
            self._queue.append(finish)
            if len(self._queue) in (1, ENOUGH):  # not for each: threads that take turns cost more than the writing
                self._changed.notify()

    def close(self, timeout_seconds: float) -> bool:
        """Write what is left and end; False when the database was away for all that time."""
        self._give_up_at = time.monotonic() + timeout_seconds
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(timeout_seconds + 1)
        return not self._thread.is_alive() and self.backlog == 0

    def _run(self) -> None:
        while group := self._gather():
            if self._write(group):
                self._done += len(group)

    def _gather(self) -> list[Finish]:
        """Wait for a first finish, then shortly for more; none when all are written and no more will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._is_closing)
            self._changed.wait_for(lambda: len(self._queue) >= ENOUGH or self._is_closing, PATIENCE_SECONDS)
            return [self._queue.popleft() for _ in range(min(MOST, len(self._queue)))]

    def _write(self, group: list[Finish]) -> bool:
        """Until it is done; False when it was given up, for the database was away."""
        while True:
            try:
                won = finishes.write(self._db, group)
            except (StoreUnavailable, StoreConflict) as error:
                log.warning("%d results wait for the database: %s", len(group), error)
                if self._give_up_at is not None and time.monotonic() > self._give_up_at:
                    return False
                time.sleep(AGAIN_SECONDS)
            except Exception:
                log.exception("%d results could not be written", len(group))
                return self._write_one_by_one(group)
            else:
                if len(won) < len(group):
                    log.info("%d results came too late, their jobs are another worker's", len(group) - len(won))
                self._let_go([finish.job for finish in group])
                return True

    def _write_one_by_one(self, group: list[Finish]) -> bool:
        """Something in one of them cannot be written: the others must not suffer, and its own lease has to run out."""
        if len(group) == 1:
            self._let_go([group[0].job])
            return True
        written = [self._write([finish]) for finish in group]
        return all(written)
