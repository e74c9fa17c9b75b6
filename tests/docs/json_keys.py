"""What `--json` of the readers prints, in objects that hold all there can be, and the keys in such an object."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from jobs.store.database import Database
from scheduler.capacity import Amount, PoolCapacity
from scheduler.curve import Curve, Step
from scheduler.hindsight import Judged
from scheduler.hours import SharedHours
from scheduler.plan import Basis, Night, Origin, PlannedPool
from scheduler.simulation import night as simulated
from scheduler.simulation.paced import play_paced
from scheduler.simulation.shapes import alternating
from scheduler.simulation.tickets import SHORT
from scheduler.usual import UsualLoad
from tests.simulation.sites import MIDDLE
from tests.support import live
from tests.support.readings import CAPACITY
from tests.support.reported_night import GPU, reported_night
from tests.support.store import START, ManualClock
from tickets_batch.cli import simulate_text
from tickets_batch.cli.plan_text import plan_as_json
from tickets_batch.cli.prospect import Prospect
from tickets_batch.cli.simulate_inputs import Engine, Tickets
from tickets_batch.cli.view import as_json
from tickets_batch.report.figures import Figures
from tickets_batch.report.words import receipt_in_words
from tickets_batch.settings import Settings

TEN = datetime(2026, 11, 30, 22, 0, tzinfo=UTC)
ALWAYS = SharedHours.of(None, ZoneInfo("UTC"))
# The keys of these are names of the user's, of rules or of reasons; `detail` is another object for each kind of event.
OPEN = frozenset({"labels", "failures", "rule_seconds", "pools[].rule_seconds", "events[].detail"})


@dataclass(frozen=True, slots=True)
class Seen:
    """The chat of last week, as a sample tells of it."""

    at: datetime
    interactive_slots: int = 5
    interactive_tokens: int = 2_000
    reason: str = "headroom"


def keys_in(value: Any, before: str = "") -> Iterator[str]:
    """Every key below, as `a.b` in objects and `a[].b` in lists of them."""
    if isinstance(value, Mapping) and before not in OPEN:
        for name, below in value.items():
            path = f"{before}.{name}" if before else name
            yield path
            yield from keys_in(below, path)
    elif isinstance(value, list | tuple) and value:
        for below in value:
            yield from keys_in(below, f"{before}[]")


def status() -> dict[str, Any]:
    """Of a batch at work with a forecast, and of one that has ended."""
    prospect = Prospect(live.forecast(), judged=(Judged(0.5, 0.1, True),))
    return as_json(live.batch(), {"gpu": live.busy()}, prospect, START, {"gpu": CAPACITY})


def report(store: Database, clock: ManualClock) -> dict[str, Any]:
    """Of a night long enough for a receipt."""
    batch_id = reported_night(store, clock, tickets=200, hours=8.0)
    figures = Figures.of(store, batch_id, Settings(pool=(GPU,)))
    return {"receipt": receipt_in_words(figures), **figures.as_json()}


def plan() -> dict[str, Any]:
    """With a pool that was measured, last week's chat, a price, and a night."""
    step = Step(8, 10.0, 100, 4.0, 2000.0, 160.0, 2.0, 3.0, 0.1, 0.02, 0.1, 0.2, probes=12)
    curve = Curve((step,), prompt_tokens=460, output_tokens=40, ask_tokens=500, largest_tokens=900, tickets_from="test")
    pool = PlannedPool(
        name="gpu",
        model="test-model",
        capacity=PoolCapacity(Amount(20, 60_000), Amount(8, 24_000), Amount(2, 6_000)),
        ttft_target_seconds=0.8,
        basis=Basis(curve, Origin.MEASURED, "yesterday"),
        hours=ALWAYS,
        usual=UsualLoad.of([Seen(TEN - timedelta(minutes=10 * place)) for place in range(1_000)], ZoneInfo("UTC")),
        cost_per_hour=2.5,
    )
    night = Night([pool], 1000, TEN, TEN + timedelta(hours=9))
    return plan_as_json([pool], night, TEN)


def simulate() -> dict[str, Any]:
    """Of a night with a deadline."""
    return simulate_text.as_json(simulated_night())


def simulated_night() -> simulate_text.Played:
    """A short one in which its pace was told."""
    night = simulated.Night(
        MIDDLE, ALWAYS, [SHORT] * 3_000, alternating(MIDDLE, 1, 1200.0), TEN, TEN + timedelta(seconds=600)
    )
    outcome, told = play_paced(night)
    engine = Engine(MIDDLE.profile, None, "default")
    tickets = Tickets(night.tickets, 500.0, 40.0, "given")
    return simulate_text.Played(night, outcome, told, engine, tickets, "alternating", night.deadline_at)
