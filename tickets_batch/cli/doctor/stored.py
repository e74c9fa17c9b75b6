"""What the database tells: whether it can be used, who is at work, and what earlier nights showed of the pools."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from jobs.store import curves, schema, services
from jobs.store import overloads as seen
from jobs.store.database import Database
from scheduler.curve import Curve, UnreadableCurve
from scheduler.simulation.fitted import fitted
from tickets_batch.cli.database import connected, is_missing
from tickets_batch.cli.doctor.check import Check
from tickets_batch.cli.doctor.engine_advice import PrefillRate
from tickets_batch.cli.text import services_in_words
from tickets_batch.settings import Settings


def database(settings: Settings) -> str:
    """Raises UserError where it does not answer, or is not at the version of this program."""
    if is_missing(settings):
        return f"SQLite, {settings.database_file}: the first submit makes it"
    with connected(settings) as db:
        if settings.database_url is None and schema.is_behind(db):
            return f"SQLite, {settings.database_file}: the next submit brings it to version {schema.VERSION}"
        schema.require_current(db)
        return f"{db.url.render_as_string(hide_password=True)} answers, version {schema.VERSION}"


def at_work(settings: Settings) -> str | Check:
    """Who is alive, and what to start. Raises UserError."""
    with _usable(settings) as db:
        if db is None:
            return "none is running yet"
        alive = services.alive(db)
    if {"scheduler", "worker"} <= {service.role for service in alive}:
        return f"{services_in_words(alive)} alive"
    if settings.redis_url is None:
        return f"{services_in_words(alive)} alive; submit --wait and up run them"
    return Check("services", "warning", f"{services_in_words(alive)} alive: start tickets-batch scheduler and worker")


def prefill_rates(settings: Settings) -> Mapping[str, PrefillRate]:
    """What `plan --measure` found of each pool that it measured. Raises UserError."""
    found: dict[str, PrefillRate] = {}
    with _usable(settings) as db:
        if db is None:
            return found
        for pool in settings.pool:
            curve = curves.latest(db, pool.name)
            if curve is None or curve.model != pool.model:
                continue
            try:
                profile = fitted(Curve.from_json(curve.detail), pool.capacity.slots)
            except UnreadableCurve:
                continue
            if profile.prefill_token_seconds > 0:
                rate = round(1 / profile.prefill_token_seconds)
                found[pool.name] = PrefillRate(rate, f"as measured on {curve.measured_at:%Y-%m-%d}")
    return found


def overloads(settings: Settings) -> Mapping[str, str]:
    """What each pool's engine said when it was overloaded. Nobody is overloaded to find out. Raises UserError."""
    with _usable(settings) as db:
        found = {pool.name: seen.of_pool(db, pool.name) if db is not None else None for pool in settings.pool}
    return {name: _overload_in_words(overload) for name, overload in found.items()}


def _overload_in_words(found: seen.Overloads | None) -> str:
    if found is None or not found.answers:
        return (
            "whether it names Retry-After when it is overloaded is unknown: it was not seen overloaded lately, and "
            "nobody floods it to find out; without, batch backs off by itself"
        )
    answers = f"of its last {found.answers:,} answers that it was overloaded (HTTP 429 or 503)"
    if not found.with_retry_after:
        return f"{answers} none named Retry-After: batch backs off by itself"
    return f"{answers} {found.with_retry_after:,} named Retry-After, which batch keeps to"


@contextmanager
def _usable(settings: Settings) -> Iterator[Database | None]:
    """The database, None where it is yet to be made or upgraded."""
    if is_missing(settings):
        yield None
        return
    with connected(settings) as db:
        yield db if schema.is_current(db) else None
