"""Which faults befall which part, and when: a pure function of the seed."""

import random
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.engine.faults import KINDS as ENGINE_KINDS

DatabaseKind = Literal["postgresql", "sqlite"]

SCHEDULERS = ("scheduler-1", "scheduler-2")  # one leads, one stands by: which is which the run decides
WORKERS = ("worker-1", "worker-2")
PARTS = (*SCHEDULERS, *WORKERS, "gateway")
EVERYTHING = "everything"  # every part, Valkey and the database's server, at one moment
SERVERS = ("valkey", "postgresql", "engine")
WAYS = tuple(
    f"{part} - {service}"
    for part in PARTS
    for service in ("redis", "database", "engine")
    if (service, part) != ("database", "gateway") and not (service == "engine" and part in SCHEDULERS)
)
CUTS = ("cut", "refuse", "stall", "half-open")
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

    def at() -> float:
        return round(rng.uniform(0.0, WINDOW_SECONDS), 2)

    # In turn, so that a few hundred plans meet every fault of every target often: one that befalls a process, one that
    # befalls a connection, one of the engine's script. By chance: up to two more.
    faults = [_befalls(*_PROCESS_FAULTS[seed % len(_PROCESS_FAULTS)], rng, database, at())]
    turn = seed + seed // len(_LINK_FAULTS)  # each time round another of them meets another of those
    faults.append(_link(*_LINK_FAULTS[turn % len(_LINK_FAULTS)], rng, database, at()))
    for _ in range(rng.randint(0, 2)):
        if rng.random() < LINK_SHARE:
            faults.append(_link(*rng.choice(_LINK_FAULTS), rng, database, at()))
        else:
            faults.append(_befalls(*rng.choice(_PROCESS_FAULTS), rng, database, at()))
    faults.append(_engine_says(ENGINE_SCRIPT[seed % len(ENGINE_SCRIPT)], rng, at()))
    return Plan(
        seed=seed,
        database=database,
        tickets=rng.randint(100, 150),
        chat_per_second=rng.choice((1.0, 2.0, 3.0)),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_seconds)),
    )


def _befalls(kind: str, target: str, rng: random.Random, database: DatabaseKind, at: float) -> Fault:
    if database == "sqlite" and target in ("postgresql", "database"):
        kind, target = "disk full", "database"  # no server to hurt: its file's disk is what can fail
    if database == "sqlite" and kind == "clock step":
        target = EVERYTHING  # its parts are on one machine, whose clock is the database's too
    match kind:
        case "kill":
            return Fault(at, kind, target, round(rng.uniform(0.1, 2.0), 2))
        case "pause":
            return Fault(at, kind, target, round(rng.uniform(0.5, 9.0), 2))
        case "disk full":
            full = database if target == "database" else target
            return Fault(at, kind, full, round(rng.uniform(0.5, 3.0), 2))
        case "restart valkey":
            keeps = {"keeps_data": target == "with its data"}
            return Fault(at, kind, target, round(rng.uniform(0.0, 1.5), 2), keeps)
        case "clock step":
            # On SQLite for longer than until the clock is read again.
            seconds = rng.uniform(11.0, 15.0) if database == "sqlite" else rng.uniform(3.0, 8.0)
            step = rng.choice((-3600.0, -90.0, -5.0, 5.0, 90.0, 3600.0))
            return Fault(at, kind, target, round(seconds, 2), {"step_seconds": step})
        case _:
            raise ValueError(kind)


def _link(kind: str, way: str, rng: random.Random, database: DatabaseKind, at: float) -> Fault:
    if database == "sqlite":
        way = way.replace("- database", "- redis")
    longest = {"cut": 0.0, "refuse": 3.0, "stall": 8.0, "half-open": 4.0}[kind]
    return Fault(at, kind, way, round(rng.uniform(longest / 4, longest), 2))


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


# Their numbers have no divisor in common with that of plans to one on SQLite, so that no turn is always that one's.
_PROCESS_FAULTS = (
    *(("kill", target) for target in (*PARTS, "postgresql", "engine", EVERYTHING)),
    *(("restart valkey", target) for target in ("with its data", "without its data")),  # SIGKILL too
    *(("pause", target) for target in (*PARTS, *SERVERS)),
    *(("clock step", target) for target in (*PARTS, EVERYTHING)),
    *(("disk full", target) for target in ("database", "valkey")),
)
_LINK_FAULTS = tuple((kind, way) for way in WAYS for kind in CUTS)
LINK_SHARE = 0.4
