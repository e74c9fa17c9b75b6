"""How far the clocks of the database and of Redis are from this machine's."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from tickets_batch.cli.database import connected, is_missing
from tickets_batch.cli.doctor import redis_server
from tickets_batch.cli.doctor.check import Check, Level
from tickets_batch.errors import UserError
from tickets_batch.settings import Settings

NOTABLE_SECONDS = 2.0
WRONG_SECONDS = 60.0


def differences(settings: Settings, *, has_database: bool, has_redis: bool) -> Iterator[Check]:
    """One check for all clocks that can be asked."""
    asked: dict[str, Callable[[Settings], float | None]] = {}
    if has_database:
        asked["the database's clock"] = _of_database
    if has_redis:
        asked["Redis' clock"] = _of_redis
    found: dict[str, float] = {}
    for name, ask in asked.items():
        try:
            ahead = ask(settings)
        except UserError:  # away by now, which is told of elsewhere
            continue
        if ahead is not None:
            found[name] = ahead
    if found:
        yield judged(found)


def judged(ahead_seconds: dict[str, float]) -> Check:
    """`ahead_seconds` is by how much each clock is ahead of this machine's."""
    words = " and ".join(f"{name} is {_in_words(seconds)}" for name, seconds in ahead_seconds.items())
    most = max(map(abs, ahead_seconds.values()))
    if most < NOTABLE_SECONDS:
        return Check("clock", "ok", words)
    level: Level = "problem" if most >= WRONG_SECONDS else "warning"
    todo = "set them right (NTP): the deadline comes by the database's, `today` is by this machine's"
    return Check("clock", level, f"{words}: {todo}")


def difference_seconds(read: Callable[[], datetime]) -> float:
    """How far what is read is ahead of this machine's clock, which is taken as half-way of the asking."""
    before = datetime.now(UTC)
    instant = read()
    return (instant - (before + (datetime.now(UTC) - before) / 2)).total_seconds()


def _in_words(seconds: float) -> str:
    if abs(seconds) < NOTABLE_SECONDS:
        return f"within {max(0.1, abs(seconds)):.1f} s of this machine's"
    return f"{abs(seconds):,.0f} s {'ahead of' if seconds > 0 else 'behind'} this machine's"


def _of_database(settings: Settings) -> float | None:
    if is_missing(settings):
        return None
    with connected(settings) as db:
        if db.dialect == "sqlite":  # its time is this machine's
            return None
        with db.read():  # connecting takes a while, which is no part of the difference
            pass
        return difference_seconds(db.now)


def _of_redis(settings: Settings) -> float | None:
    with redis_server.connected(settings) as redis:
        if redis is None:
            return None
        redis.ping()

        def read() -> datetime:
            seconds, microseconds = redis.time()
            return datetime.fromtimestamp(seconds + microseconds / 1e6, UTC)

        return difference_seconds(read)
