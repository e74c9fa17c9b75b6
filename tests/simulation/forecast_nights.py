"""The nights by which forecasts are judged: played once, and their rows kept until a source of them changes.

Each has more tickets than it can do and lasts its hours out. A batch of fewer tickets is the same night up to the
moment at which so many were done, so one night gives several volumes.
"""

import json
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

from scheduler.capacity import Amount, PoolCapacity
from scheduler.hours import SharedHours
from scheduler.limit import Rule
from scheduler.observation import Observation
from scheduler.simulation.engine.profile import EngineProfile
from scheduler.simulation.night import Night, Row, play
from scheduler.simulation.shapes import SHAPES, Arrival
from scheduler.simulation.site import Site
from scheduler.simulation.tickets import Ticket
from scheduler.simulation.trace import Trace
from tests.simulation.nights import change_constants
from tests.support.shared_data import shared_data

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "simulation" / "forecast"
SOURCES = (
    "scheduler/simulation/engine/*.py",
    *(f"scheduler/simulation/{name}.py" for name in ("admission", "night", "shapes", "tickets", "trace", "world")),
    *(f"scheduler/{name}.py" for name in ("book", "capacity", "duration", "headroom", "history", "limit", "pull_back")),
    "tests/simulation/forecast_nights.py",
)
PROCESSES = 2
ZONE = ZoneInfo("Europe/Berlin")
STARTS_AT = datetime(2026, 11, 30, 21, 0, tzinfo=UTC)
# About 5,000 tickets and 1,000 chat requests an hour.
SITE = Site(
    "10 slots, slow",
    EngineProfile(slots=10, kv_capacity_tokens=60_000).at_speed(0.25),
    1,
    PoolCapacity(Amount(10, 60_000), Amount(4, 24_000), Amount(1, 6_000)),
    Fraction(1, 8),
    ttft_target_seconds=2.0,
)
# The engine takes four times as long for everything as the one that these were made for.
PACE = (
    ("scheduler.simulation.admission", "ASK_AGAIN_SECONDS", 0.2),
    ("scheduler.simulation.admission", "TICK_SECONDS", 2.0),
    ("scheduler.simulation.admission", "LIMIT_MS", 12_000),
)
TRACE_SHARE = 0.035  # of the public trace: about the chat of the other shapes
TICKETS = 60_000  # more than any of the nights can do
TRACE = "azure-llm-trace/conversation.csv"


@dataclass(frozen=True, slots=True)
class Played:
    """Everything that a night depends on, apart from the sources. `step_at`: seconds until the chat changes."""

    shape: str
    seed: int
    hours: float
    step_at: float = 0.0


class Stretch(NamedTuple):
    """A row as it is kept: `at` and `seconds` in seconds from the start."""

    at: float
    seconds: float
    tokens: int
    tickets: int
    chat_slots: int
    chat_tokens: int
    held_slots: int
    held_tokens: int
    limit_slots: int
    limit_tokens: int
    rule: str

    def observation(self, starts_at: datetime = STARTS_AT) -> Observation:
        """As the forecaster is told of it."""
        return Observation(
            starts_at + timedelta(seconds=self.at),
            self.seconds,
            self.tokens,
            Amount(self.chat_slots, self.chat_tokens),
            Amount(self.held_slots, self.held_tokens),
            Amount(self.limit_slots, self.limit_tokens),
            self.rule != Rule.CLOSED,
        )


def play_all(nights: Iterable[Played]) -> Mapping[Played, Sequence[Stretch]]:
    """The rows of each night; those that are not kept are played, two at a time."""
    wanted = list(dict.fromkeys(nights))
    digest = _digest()
    missing = [night for night in wanted if not _path(night, digest).exists()]
    with ProcessPoolExecutor(PROCESSES, get_context("spawn"), change_constants, (PACE,)) as pool:
        try:
            for night, rows in zip(missing, pool.map(_play, missing), strict=True):
                _keep(_path(night, digest), rows)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # else an interrupt would wait for every night
    return {night: [Stretch(*row) for row in json.loads(_path(night, digest).read_text())] for night in wanted}


def _play(night: Played) -> list[Stretch]:
    rng = random.Random(night.seed * 7 + 1)
    played = Night(
        SITE,
        SharedHours.of(None, ZONE),
        [_ticket(rng) for _ in range(TICKETS)],
        _chat(night),
        STARTS_AT,
        STARTS_AT + timedelta(hours=night.hours),
        seed=night.seed,
    )
    return [_stretch(row) for row in play(played).rows if played.deadline_at and row.at <= played.deadline_at]


def _stretch(row: Row) -> Stretch:
    return Stretch(
        (row.at - STARTS_AT).total_seconds(),
        row.seconds,
        row.tokens,
        row.tickets,
        row.chat.slots,
        row.chat.tokens,
        row.held.slots,
        row.held.tokens,
        row.limit.slots,
        row.limit.tokens,
        str(row.rule),
    )


def _ticket(rng: random.Random) -> Ticket:
    return Ticket(max(40, min(3000, int(rng.lognormvariate(math.log(420), 0.7)))), rng.randint(8, 60))


# --- the chat


def _chat(night: Played) -> Sequence[Arrival]:
    seconds = night.hours * 3600
    if night.shape in SHAPES:
        return SHAPES[night.shape](SITE, night.seed, seconds)
    rng = random.Random(night.seed)
    if night.shape == "trace":
        trace = Trace.read(shared_data(TRACE))
        return sorted(trace.lap(rng.uniform(0, trace.seconds), seconds, TRACE_SHARE, rng))
    rate, scale = _RATES[night.shape], float(SITE.chat_scale)
    arrivals, at = [], 0.0
    while (at := at + rng.expovariate(_PEAK * scale)) < seconds:
        if rng.random() < rate(at, night) / _PEAK:
            arrivals.append(Arrival(at, _length(rng, 400, 0.5), _length(rng, 80, 0.4)))
    return arrivals


def _length(rng: random.Random, median: float, sigma: float) -> int:
    return max(4, int(rng.lognormvariate(math.log(median), sigma)))


def _diurnal(at: float, night: Played) -> float:
    """Busy in the evening, next to nothing in the small hours, busy again in the morning, whatever the seed."""
    return 2.4 + 2.0 * math.cos(math.tau * at / (1.1 * night.hours * 3600))


_PEAK = 12.0
_RATES: dict[str, Callable[[float, Played], float]] = {
    "constant": lambda at, night: 2.5,
    "diurnal": _diurnal,
    "step-up": lambda at, night: 1.5 if at < night.step_at else 4.0,
    "step-down": lambda at, night: 4.0 if at < night.step_at else 1.5,
    "none": lambda at, night: 0.0,
    "flood": lambda at, night: _PEAK,
}


# --- what is kept


def _path(night: Played, digest: str) -> Path:
    return CACHE / f"{sha256(f'{digest} {night!r}'.encode()).hexdigest()[:24]}.json"


def _keep(path: Path, rows: Sequence[Stretch]) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE.parents[1] / ".gitignore").write_text("*\n")
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(rows))
    fresh.replace(path)


def _digest() -> str:
    digest = sha256()
    for pattern in SOURCES:
        for path in sorted(ROOT.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()
