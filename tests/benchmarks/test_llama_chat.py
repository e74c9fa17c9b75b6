"""What tickets cost a chat on the real llama.cpp server: alone, beside eight at a time without a gate, beside ours.

Four slots, of which the chat owns two and batch one. Short phases take turns, for the machine may have other work too,
and the same people ask the same in each. Chat alone and beside no gate goes straight to the server, beside ours through
the gateway.
"""

import asyncio
import csv
import itertools
import math
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest

from jobs.answer import parse_answer
from jobs.prompt import build_messages, response_format
from jobs.store import batches, moves
from jobs.store.database import Database
from scheduler.pool_reading import quantile
from tests.integration.test_demo_engine import running
from tests.support.wait import wait_until
from tickets_batch.cli.database import opened
from tickets_batch.cli.intent import Options
from tickets_batch.cli.submit import enter
from tickets_batch.demo import material
from tickets_batch.demo.chat import Answer, Chat
from tickets_batch.demo.llama_server import CONTEXT_TOKENS, MODEL
from tickets_batch.local.ports import LOOPBACK, answers_http, free_port
from tickets_batch.local.services import WITH_GATEWAY, EmbeddedServices
from tickets_batch.settings import Settings
from workers.client import ModelClient

SLOTS, CHAT_SLOTS, FLOOR_SLOTS = 4, 2, 1
UNGATED = 8
QUESTION_EVERY_SECONDS = 2.5
PHASE_SECONDS = 30.0
ROUNDS = 4
TICKETS = 3_000  # more than are done in all phases
LEAST_ANSWERS = 30
MOST_OF_UNGATED = 0.5
PATIENCE_SECONDS = 120.0


class Arrangement(Protocol):
    """What goes on beside the chat."""

    chat_url: str

    def done(self) -> int:
        """Tickets answered so far."""

    def __enter__(self) -> object:
        """Begin; the engine is at work on tickets from then on."""

    def __exit__(self, *_: object) -> None:
        """End, and leave the engine idle."""


class Alone:
    """No ticket."""

    def __init__(self, base_url: str) -> None:
        self.chat_url = base_url

    def done(self) -> int:
        return 0

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class Ungated:
    """So many tickets at a time straight to the server."""

    def __init__(self, base_url: str, settings: Settings) -> None:
        self.chat_url = base_url
        self._pool = settings.pool[0]
        self._spec = material.spec()
        with Path(settings.source.path or "").open(encoding="utf-8", newline="") as file:
            self._rows = itertools.cycle(list(csv.DictReader(file)))
        self._done = 0

    def done(self) -> int:
        return self._done

    def __enter__(self) -> None:
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()))
        self._thread.start()
        wait_until_more(self)

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        self._thread.join()

    async def _work(self) -> None:
        client = ModelClient(self._pool, at_once=UNGATED)
        await asyncio.gather(*(self._lane(client) for _ in range(UNGATED)))
        await client.aclose()

    async def _lane(self, client: ModelClient) -> None:
        spec, parse = self._spec, partial(parse_answer, self._spec)
        while not self._leaving.is_set():
            row = next(self._rows)
            messages = build_messages(spec, row["subject"], row["body"])
            await client.classify(messages, response_format(spec), spec.max_output_tokens, parse=parse)
            self._done += 1


class Ours:
    """One batch that goes on and rests, worked on by the whole product."""

    def __init__(self, settings: Settings, db: Database) -> None:
        self.chat_url = f"http://{settings.gateway.listen}/v1"
        self._db = db
        self._batch_id = enter(db, settings, OPTIONS).id
        moves.pause(db, self._batch_id)

    def done(self) -> int:
        batch = batches.get(self._db, self._batch_id)
        assert not batch.failed
        return batch.succeeded

    def __enter__(self) -> None:
        moves.resume(self._db, self._batch_id)
        wait_until_more(self)

    def __exit__(self, *_: object) -> None:
        moves.pause(self._db, self._batch_id)
        wait_until(lambda: batches.get(self._db, self._batch_id).running == 0, "the batch to rest", PATIENCE_SECONDS)


OPTIONS = Options(every_row=True)


def wait_until_more(arrangement: Arrangement) -> None:
    """Wait until each slot has read the part of the prompt that all tickets share."""
    enough = arrangement.done() + UNGATED
    wait_until(lambda: arrangement.done() >= enough, "the first tickets", PATIENCE_SECONDS)


@dataclass(frozen=True, slots=True)
class Phase:
    """What the chat felt in one phase, and how many tickets were done meanwhile."""

    answers: Sequence[Answer]
    tickets: int

    @classmethod
    def play(cls, arrangement: Arrangement, seed: int) -> "Phase":
        with arrangement:
            before = arrangement.done()
            with Chat(arrangement.chat_url, MODEL, every_seconds=QUESTION_EVERY_SECONDS, seed=seed) as chat:
                time.sleep(PHASE_SECONDS)
                tickets = arrangement.done() - before
        return cls(chat.answers(), tickets)


def settings_for(base_url: str, folder: Path) -> Settings:
    pool = {
        "name": "chat",
        "base_url": base_url,
        "model": MODEL,
        "engine": "llama.cpp",
        "capacity": share(SLOTS),
        "protected": {"interactive": share(CHAT_SLOTS), "batch": share(FLOOR_SLOTS)},
        "signal": [{"type": "ledger"}, {"type": "engine"}],
    }
    return Settings(
        home=folder / "home",
        source={"path": str(tickets_again_and_again(folder))},
        classification=material.classification(),
        pool=[pool],
        gateway={"listen": f"{LOOPBACK}:{free_port()}"},
        worker={"processes": 1},
    )


def share(slots: int) -> dict[str, int]:
    return {"slots": slots, "tokens": slots * CONTEXT_TOKENS}


def tickets_again_and_again(folder: Path) -> Path:
    """The demo's tickets, each many times and with an id of its own."""
    once, path = folder / "once.csv", folder / "tickets.csv"
    material.write_tickets(once, datetime.now(UTC).date())
    with once.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(
            row | {"id": f"T{n:05d}"} for n, row in zip(range(TICKETS), itertools.cycle(rows), strict=False)
        )
    return path


@contextmanager
def at_work(folder: Path) -> Iterator[dict[str, Arrangement]]:
    """The server, and all of the product on it."""
    with running() as (_, base_url):
        settings = settings_for(base_url, folder)
        with EmbeddedServices(settings, WITH_GATEWAY, said=print) as services, opened(services.settings) as db:
            wait_until(lambda: answers_http(f"http://{settings.gateway.listen}/healthz"), "the gateway", 60)
            yield {
                "alone": Alone(base_url),
                f"no gate at {UNGATED}": Ungated(base_url, settings),
                "ours": Ours(services.settings, db),
            }


def render(played: Mapping[str, Sequence[Phase]]) -> Iterator[str]:
    yield f"{'chat TTFT':14}{'n':>5}{'p50':>9}{'p95':>9}{'most':>9}{'refused':>9}{'failed':>8}{'tickets/min':>13}"
    for name, phases in played.items():
        answers = [answer for phase in phases for answer in phase.answers]
        p50, p95, most = (f"{waited(phases, share):7.2f} s" for share in (0.5, 0.95, 1.0))
        refused = sum(answer.is_refused for answer in answers)
        failed = sum(answer.ttft_seconds is None for answer in answers) - refused
        per_minute = sum(phase.tickets for phase in phases) * 60 / (PHASE_SECONDS * len(phases))
        yield f"{name:14}{len(answers):5}{p50}{p95}{most}{refused:9}{failed:8}{per_minute:13.0f}"


def waited(phases: Sequence[Phase], share: float) -> float:
    """Seconds to the first token; what got none waited for ever."""
    found = [answer.ttft_seconds for phase in phases for answer in phase.answers]
    return quantile((math.inf if seconds is None else seconds for seconds in found), share) or math.inf


@pytest.mark.benchmark
@pytest.mark.timeout(3600)
def test_a_chat_on_llama_cpp_beside_the_tickets(tmp_path: Path) -> None:
    played: dict[str, list[Phase]] = {}
    with at_work(tmp_path) as arrangements:
        for seed in range(ROUNDS):
            for name, arrangement in arrangements.items():
                played.setdefault(name, []).append(Phase.play(arrangement, seed))
                print(f"round {seed + 1}, {name}; load average {os.getloadavg()[0]:.1f}", flush=True)
    print("\n".join(["", *render(played)]))
    ours, ungated = played["ours"], played[f"no gate at {UNGATED}"]
    assert all(sum(len(phase.answers) for phase in phases) >= LEAST_ANSWERS for phases in played.values())
    for quantile_share in (0.5, 0.95):
        assert waited(ours, quantile_share) < MOST_OF_UNGATED * waited(ungated, quantile_share)
