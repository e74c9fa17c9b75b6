"""Which faults befall which part, and when: a pure function of the seed."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.engine.faults import KINDS as ENGINE_KINDS

DatabaseKind = Literal["postgresql", "sqlite"]

SCHEDULERS = ("scheduler-1", "scheduler-2")  # one leads, one stands by: which is which the run decides
WORKERS = ("worker-1", "worker-2")
PARTS = (*SCHEDULERS, *WORKERS, "gateway")
EVERYTHING = "everything"  # every part, Valkey and the database's server, at one moment
WINDOW_SECONDS = 5.5  # faults begin within so long of the first answer
SQLITE_EVERY = 5  # one plan in so many runs on SQLite

# Every kind that the engine's script knows; what would block the whole batch for long comes in short outbreaks.
ENGINE_SCRIPT = tuple(sorted(ENGINE_KINDS))
_BLOCKING = frozenset({"401", "403", "404", "schema_refused"})
_TICKET_ENDS = frozenset({"400", "content_filter", "content_filter_answer", "context_too_long"})


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: it begins `at_seconds` after the first answer and is healed `seconds` later.

    What is half-open is never healed: whoever waits there has to find out by itself.
    """

    at_seconds: float
    kind: str
    target: str
    seconds: float
    detail: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def name(self) -> str:
        """What it is counted as."""
        return f"{self.kind} {self.target}"

    def __str__(self) -> str:
        more = "".join(f" {key}={value}" for key, value in self.detail.items())
        return f"{self.at_seconds:6.2f} s  {self.kind:14} {self.target}{more}, for {self.seconds:.2f} s"


@dataclass(frozen=True, slots=True)
class Plan:
    """What one run is made of."""

    seed: int
    database: DatabaseKind
    tickets: int
    chat_per_second: float
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        head = f"seed {self.seed}: {self.tickets} tickets on {self.database}, {self.chat_per_second:g} chats a second"
        return "\n".join([head, *map(str, self.faults)])


def plan_of(seed: int) -> Plan:
    """The plan of a seed. Plans of one version of this module are the same everywhere."""
    rng = random.Random(seed)
    database: DatabaseKind = "sqlite" if seed % SQLITE_EVERY == 0 else "postgresql"
    makers = [maker for maker in _MAKERS for _ in range(_WEIGHT[maker])]
    # Neighbouring seeds begin with different kinds, so that a few hundred plans meet every kind often.
    first = _MAKERS[seed % len(_MAKERS)]
    chosen = [first, *(rng.choice(makers) for _ in range(rng.randint(1, 3)))]
    faults = [maker(rng, database, round(rng.uniform(0.0, WINDOW_SECONDS), 2)) for maker in chosen]
    # The same for what the engine's script has: each plan has its own kind of it, in turn.
    script = ENGINE_SCRIPT[seed % len(ENGINE_SCRIPT)]
    faults.append(_engine_says(script, rng, round(rng.uniform(0.0, WINDOW_SECONDS), 2)))
    return Plan(
        seed=seed,
        database=database,
        tickets=rng.randint(100, 150),
        chat_per_second=rng.choice((1.0, 2.0, 3.0)),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_seconds)),
    )


def _kill(rng: random.Random, _: DatabaseKind, at: float) -> Fault:
    return Fault(at, "kill", rng.choice((*PARTS, *PARTS, EVERYTHING)), round(rng.uniform(0.1, 2.0), 2))


def _pause(rng: random.Random, database: DatabaseKind, at: float) -> Fault:
    servers = ("valkey", "engine") if database == "sqlite" else ("valkey", "engine", "postgresql")
    return Fault(at, "pause", rng.choice((*PARTS, *PARTS, *servers)), round(rng.uniform(0.5, 7.0), 2))


def _restart_valkey(rng: random.Random, _: DatabaseKind, at: float) -> Fault:
    keeps = rng.random() < 0.5
    target = "with its data" if keeps else "without its data"
    return Fault(at, "restart valkey", target, round(rng.uniform(0.0, 1.5), 2), {"keeps_data": keeps})


def _restart_database(rng: random.Random, database: DatabaseKind, at: float) -> Fault:
    if database == "sqlite":  # no server to restart: its file's disk is what can fail
        return _fill_disk(rng, database, at)
    return Fault(at, "kill", "postgresql", round(rng.uniform(0.0, 1.5), 2))


def _link(rng: random.Random, database: DatabaseKind, at: float) -> Fault:
    part = rng.choice(PARTS)
    services = ["redis"]
    if part != "gateway" and database == "postgresql":
        services.append("database")
    if part not in SCHEDULERS:
        services.append("engine")
    kind, seconds = rng.choice((("cut", 0.0), ("refuse", 3.0), ("stall", 5.0), ("half-open", 4.0)))
    return Fault(at, kind, f"{part} - {rng.choice(services)}", round(rng.uniform(seconds / 4, seconds), 2))


def _fill_disk(rng: random.Random, database: DatabaseKind, at: float) -> Fault:
    return Fault(at, "disk full", database, round(rng.uniform(0.5, 3.0), 2))


def _engine_says(kind: str, rng: random.Random, at: float) -> Fault:
    rate = round(rng.uniform(0.1, 1.0), 2)
    seconds = round(rng.uniform(0.5, 3.0), 2)
    details: dict[str, Any] = {}
    if kind in ("429", "503") and rng.random() < 0.5:
        details = {"retry_after_seconds": 1.0, "retry_after_form": rng.choice(("seconds", "date"))}
    if kind in ("slow_first_token", "stall", "late_abort"):
        details = {"seconds": round(rng.uniform(0.3, 5.0), 2)}
    if kind in ("stall", "drop_mid_stream"):
        details["after_tokens"] = rng.randint(1, 6)
    if kind in _BLOCKING:
        rate, seconds = 1.0, 0.4
    if kind in _TICKET_ENDS:
        rate = round(rate / 5, 2)
    return Fault(at, "engine says", kind, seconds, {"rate": rate, **details})


def _step_clock(rng: random.Random, database: DatabaseKind, at: float) -> Fault:
    step = rng.choice((-3600.0, -90.0, -5.0, 5.0, 90.0, 3600.0))
    target, seconds = rng.choice(PARTS), round(rng.uniform(3.0, 8.0), 2)
    if database == "sqlite" and rng.random() < 0.5:
        # There the machine's clock is the database's: it steps for all, for longer than until it is read again.
        target, seconds = EVERYTHING, round(rng.uniform(11.0, 15.0), 2)
    return Fault(at, "clock step", target, seconds, {"step_seconds": step})


_Maker = Callable[[random.Random, DatabaseKind, float], Fault]
_WEIGHT: dict[_Maker, int] = {
    _kill: 3,
    _pause: 3,
    _restart_valkey: 2,
    _restart_database: 1,
    _link: 4,
    _fill_disk: 1,
    _step_clock: 1,
}
_MAKERS = tuple(_WEIGHT)
