"""The writer thread: what became of jobs goes to SQL several at a time, and never on the event loop."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence

from jobs.job import Finish
from jobs.store import finishes
from jobs.store.database import Database
from jobs.store.errors import StoreConflict, StoreUnavailable

log = logging.getLogger(__name__)

MOST = 32  # finishes to a transaction
PATIENCE_SECONDS = 0.05  # how long the first of them waits for the others
AGAIN_SECONDS = 0.5

Written = Callable[[Sequence[Finish], set[int]], None]


class Writer:
    """Writes finishes in the order in which they come; after a failure it tries for as long as the process lives.

    `written` is called on the writer's thread with what was written and the ids whose lease still held.
    """

    def __init__(self, db: Database, written: Written) -> None:
        self._db = db
        self._written = written
        self._queue: queue.SimpleQueue[Finish | None] = queue.SimpleQueue()
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
        self._put += 1
        self._queue.put(finish)

    def close(self, timeout_seconds: float) -> bool:
        """Write what is left and end; False when the database was away for all that time."""
        self._give_up_at = time.monotonic() + timeout_seconds
        self._queue.put(None)
        self._thread.join(timeout_seconds + 1)
        return not self._thread.is_alive() and self.backlog == 0

    def _run(self) -> None:
        is_open = True
        while is_open:
            group, is_open = self._gather()
            if group:
                self._write(group)
                self._done += len(group)

    def _gather(self) -> tuple[list[Finish], bool]:
        """Wait for a first finish, then shortly for more; False when it was the last group."""
        group: list[Finish] = []
        first = self._queue.get()
        if first is None:
            return group, False
        group.append(first)
        until = time.monotonic() + PATIENCE_SECONDS
        while len(group) < MOST:
            try:
                more = self._queue.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                break
            if more is None:
                return group, False
            group.append(more)
        return group, True

    def _write(self, group: list[Finish]) -> None:
        while True:
            try:
                won = finishes.write(self._db, group)
            except (StoreUnavailable, StoreConflict) as error:
                log.warning("%d results wait for the database: %s", len(group), error)
                if self._give_up_at is not None and time.monotonic() > self._give_up_at:
                    return
                time.sleep(AGAIN_SECONDS)
            except Exception:
                # Something in one of them cannot be written. The others must not suffer; its lease will run out.
                log.exception("%d results could not be written", len(group))
                if len(group) == 1:
                    return
                for finish in group:
                    self._write([finish])
                return
            else:
                self._written(group, won)
                return
