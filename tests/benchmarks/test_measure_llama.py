"""`plan --measure` on the real llama.cpp server beside a batch of the same tickets at the same number of slots."""

import asyncio
import csv
import itertools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobs.store import batches
from scheduler.curve import Curve
from tests.integration.test_demo_engine import running
from tests.support.wait import wait_until
from tickets_batch.cli.database import opened
from tickets_batch.cli.intent import Options
from tickets_batch.cli.plan_curve import curve_in_words
from tickets_batch.cli.submit import enter
from tickets_batch.demo import material
from tickets_batch.demo.llama_server import CONTEXT_TOKENS, MODEL
from tickets_batch.local.services import IN_ORDER, EmbeddedServices
from tickets_batch.settings import Settings
from workers.measure.measurement import Measurement
from workers.measure.texts import Texts

SLOTS = 4
TICKETS = int(os.environ.get("MEASURED_TICKETS", "300"))
FIRST = 3 * SLOTS  # tickets that do not count: each slot has read what all share by then
AGREES_WITHIN = 0.2
PATIENCE_SECONDS = 900.0
LOOK_SECONDS = 0.5  # seldom: the model needs the cores


@dataclass(frozen=True, slots=True)
class Run:
    """Tickets/s of a batch between its first few tickets and its last few."""

    tickets: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.tickets / self.seconds


def settings_for(base_url: str, folder: Path) -> Settings:
    whole = {"slots": SLOTS, "tokens": SLOTS * CONTEXT_TOKENS}
    pool = {
        "name": "own",
        "base_url": base_url,
        "model": MODEL,
        "engine": "llama.cpp",
        "capacity": whole,
        "protected": {"batch": whole},
    }
    return Settings(
        home=folder / "home",
        source={"path": str(write_tickets(folder))},
        classification=material.classification(),
        pool=[pool],
        worker={"processes": 1},
    )


def write_tickets(folder: Path) -> Path:
    """The demo's tickets, each several times and with an id of its own."""
    path = folder / "tickets.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "subject", "body"])
        for number, (subject, body) in zip(range(TICKETS), itertools.cycle(texts(folder).tickets), strict=False):
            writer.writerow([f"T{number:05d}", subject, body])
    return path


def texts(folder: Path) -> Texts:
    once = folder / "once.csv"
    material.write_tickets(once, datetime.now(UTC).date())
    with once.open(encoding="utf-8", newline="") as file:
        rows = [(row["subject"], row["body"]) for row in csv.DictReader(file)]
    return Texts(material.spec(), rows, "the demo's tickets")


@contextmanager
def batch_of(settings: Settings) -> Iterator[Run]:
    options = Options(every_row=True)
    with EmbeddedServices(settings, IN_ORDER, said=print) as services, opened(services.settings) as db:
        batch_id = enter(db, services.settings, options).id

        def done() -> int:
            batch = batches.get(db, batch_id)
            return batch.succeeded + batch.failed

        first = wait_until(lambda: done() >= FIRST and done(), "the first tickets", PATIENCE_SECONDS, LOOK_SECONDS)
        began = time.monotonic()
        last = wait_until(
            lambda: done() >= TICKETS - SLOTS and done(), "the last tickets", PATIENCE_SECONDS, LOOK_SECONDS
        )
        yield Run(last - first, time.monotonic() - began)


def measured(settings: Settings, folder: Path) -> Curve:
    return asyncio.run(Measurement(settings.pool[0], texts(folder), ledger=None, say=print).run())


@pytest.mark.benchmark
@pytest.mark.timeout(3600)
def test_a_measurement_agrees_with_a_batch(tmp_path: Path) -> None:
    with running() as (_, base_url):
        settings = settings_for(base_url, tmp_path)
        curve = measured(settings, tmp_path)
        with batch_of(settings) as run:
            pass
    step = next(step for step in curve.steps if step.in_flight == SLOTS)
    print("\n".join(["", *curve_in_words(curve, settings.pool[0].ttft_target_seconds)]))
    print(
        f"\nat {SLOTS} slots: measured {step.tickets_per_second:.2f} tickets/s in {step.seconds:.0f} s, "
        f"a batch of {TICKETS} {run.rate:.2f} tickets/s, ratio {step.tickets_per_second / run.rate:.2f}; "
        f"load average {os.getloadavg()[0]:.1f}"
    )
    assert step.tickets_per_second == pytest.approx(run.rate, rel=AGREES_WITHIN)
