"""A connection to PostgreSQL that does not wait for ever.

Keepalives and `tcp_user_timeout` end a connection whose packets nobody acknowledges. Behind a proxy that hangs they are
acknowledged, and the answer never comes: the driver has no bound for that of its own.
"""

import time
from collections.abc import Generator
from typing import Any, TypeVar, cast

import psycopg
from sqlalchemy import Connection

# Longer than any statement of ours works or waits for a lock without a word: those are of a few thousand rows, and who
# is cut off in a transaction holds its locks for IDLE_IN_TRANSACTION_MS. Changing the tables takes longer: see `allow`.
SILENCE_SECONDS = 60.0

T = TypeVar("T")


class BoundedConnection(psycopg.Connection[Any]):
    """Ends itself, with an OperationalError, when the server has said nothing for SILENCE_SECONDS of a statement.

    `silence_seconds` is a bound of its own for one connection: for the ping of a kept one it is much shorter.
    """

    silence_seconds: float | None = None

    def wait(self, gen: Generator[Any, Any, T], interval: float = 0.1, timeout: float | None = None) -> T:
        """As the driver's own, which sends 0 into `gen` for every interval in which nothing came."""
        answer: T = super().wait(self._bounded(gen), interval)
        return answer

    def _bounded(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        bound_seconds = SILENCE_SECONDS if self.silence_seconds is None else self.silence_seconds
        until = time.monotonic() + bound_seconds
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    until = time.monotonic() + bound_seconds
                elif time.monotonic() > until:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer for {bound_seconds:g} s")
                wanted = gen.send(ready)
        except StopIteration as ended:
            ended_with: T = ended.value
            return ended_with


def allow(connection: Connection, seconds: float) -> None:
    """Let the statements of one connection to PostgreSQL work, or wait, for so long without a word."""
    driver = cast(BoundedConnection, connection.connection.driver_connection)
    driver.silence_seconds = seconds
