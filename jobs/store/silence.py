"""A connection to PostgreSQL that does not wait for ever.

Keepalives and `tcp_user_timeout` end a connection whose packets nobody acknowledges. Behind a proxy that hangs they are
acknowledged, and the answer never comes: the driver has no bound for that of its own.
"""

import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg

SILENCE_SECONDS = 60.0  # longer than any statement of ours works, or waits for a lock, without a word

T = TypeVar("T")


class BoundedConnection(psycopg.Connection[Any]):
    """Ends itself, with an OperationalError, when the server has said nothing for SILENCE_SECONDS of a statement."""

    def wait(self, gen: Generator[Any, Any, T], interval: float = 0.1, timeout: float | None = None) -> T:
        """As the driver's own, which sends 0 into `gen` for every interval in which nothing came."""
        answer: T = super().wait(self._bounded(gen), interval)
        return answer

    def _bounded(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        until = time.monotonic() + SILENCE_SECONDS
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    until = time.monotonic() + SILENCE_SECONDS
                elif time.monotonic() > until:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer for {SILENCE_SECONDS:g} s")
                wanted = gen.send(ready)
        except StopIteration as ended:
            ended_with: T = ended.value
            return ended_with
