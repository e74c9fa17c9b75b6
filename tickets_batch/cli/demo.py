"""`demo`: sixty tickets on a real model on this machine, through the whole stack, while people chat with it."""

import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import click
from rich.console import Console
from rich.table import Table

from jobs.store import batches, results, services
from jobs.store.batches import Batch
from jobs.store.results import ResultRow
from tickets_batch.cli.database import opened
from tickets_batch.cli.ending import exit_code
from tickets_batch.cli.frame import Call, verb
from tickets_batch.cli.intent import Options
from tickets_batch.cli.ledgers import Ledgers
from tickets_batch.cli.submit_and_wait import to_its_end
from tickets_batch.demo import material
from tickets_batch.demo.chat import QUESTIONS, Chat, ask
from tickets_batch.demo.felt import Got, batch_in_words, chat_in_words
from tickets_batch.demo.llama_server import CONTEXT_TOKENS, MODEL, find_weights
from tickets_batch.errors import UserError
from tickets_batch.local.child import Program
from tickets_batch.local.ports import LOOPBACK, answers_http, free_port
from tickets_batch.local.services import WITH_GATEWAY, EmbeddedServices
from tickets_batch.local.supervisor import Supervisor
from tickets_batch.settings import Settings

SLOTS, CHAT_SLOTS, FLOOR_SLOTS = 4, 2, 1
SEED = 1
ALONE_SECONDS = 15.0
LEAST_GAP_SECONDS = 1.5
GAP_PER_ANSWER = 5.0  # a chat that takes about a fifth of the machine
READY_SECONDS = 60.0
LOOK_SECONDS = 0.25
HOW_TO_POINT_ELSEWHERE = """\
That was a model of 135 million parameters, which stands in for yours: it shows the machinery, not the labels you can
expect. To point it at your own model and tickets:
  export OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=...
  tickets-batch submit --input tickets.csv --all --model NAME --labels billing,shipping,technical --wait"""


@verb()
@click.pass_obj
def demo_command(call: Call) -> int:
    """Classify sixty tickets on a small real model on this machine, while a chat goes on there.

    They go through queue, admission and database like any others, the chat through the gateway. Takes a minute or two
    on two cores, needs no network and no settings, and leaves nothing behind.
    """
    find_weights()
    with tempfile.TemporaryDirectory(prefix="tickets-batch-demo-") as folder:
        home = Path(folder)
        with _model_server(home) as base_url:
            settings = _settings(home, base_url)
            tickets = material.write_tickets(home / "tickets.csv", datetime.now(settings.zone).date())
            batch, felt = _beside_a_chat(settings)
        _show(tickets, _results(settings))
    click.echo("\n".join(("", *felt, "", HOW_TO_POINT_ELSEWHERE)))
    return exit_code(batch)


def _beside_a_chat(settings: Settings) -> tuple[Batch, list[str]]:
    """Let people chat, alone at first, then beside the batch until it ends; the batch, and what both felt."""
    base_url = f"http://{settings.gateway.listen}/v1"
    with EmbeddedServices(settings, WITH_GATEWAY, said=_say) as embedded:
        _wait_until_at_work(settings)
        every_seconds = _bearable_gap(base_url)
        _say(f"people ask the model something every {every_seconds:.1f} s, alone for {ALONE_SECONDS:g} s ...")
        with Chat(base_url, MODEL, every_seconds=every_seconds, seed=SEED) as chat:
            time.sleep(ALONE_SECONDS)
            submitted_at = time.monotonic()
            with FloorWatch(embedded.settings) as floor:
                batch = to_its_end(embedded.settings, _options())
            ended_at = time.monotonic()
    felt = chat_in_words(chat.answers(until=submitted_at), chat.answers(submitted_at, ended_at))
    got = Got(batch.succeeded + batch.failed, _seconds(batch), floor.seconds, batch.yields)
    return batch, [*felt, *batch_in_words(got, slots=SLOTS, most_slots=SLOTS - CHAT_SLOTS, floor_slots=FLOOR_SLOTS)]


def _wait_until_at_work(settings: Settings) -> None:
    """Programs that start would disturb the chat. Raises UserError."""
    until = time.monotonic() + READY_SECONDS
    with opened(settings) as db:
        while True:
            roles = {service.role for service in services.alive(db)}
            if {"scheduler", "worker"} <= roles and answers_http(f"http://{settings.gateway.listen}/healthz"):
                return
            if time.monotonic() > until:
                raise UserError(
                    f"the services do not all start within {READY_SECONDS:g} s: try again on an idler machine"
                )
            time.sleep(LOOK_SECONDS)


def _bearable_gap(base_url: str) -> float:
    """Seconds between two questions that leave this machine time for the tickets. Raises UserError."""
    answers = [ask(base_url, MODEL, question) for question in QUESTIONS[:3]]
    if any(answer.ttft_seconds is None for answer in answers):
        raise UserError("the model gave the chat's first questions no answer through the gateway: try again")
    return max(LEAST_GAP_SECONDS, GAP_PER_ANSWER * answers[-1].seconds)  # the first ones warm the model up


def _seconds(batch: Batch) -> float:
    if batch.started_at is None or batch.finished_at is None:
        return 0.0
    return (batch.finished_at - batch.started_at).total_seconds()


class FloorWatch:
    """Looks now and then at what batch may hold; `seconds` is for how long that was its floor and no more."""

    def __init__(self, settings: Settings) -> None:
        self.seconds = 0.0
        self._settings = settings
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="floor", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leaving.set()
        self._thread.join()

    def _watch(self) -> None:
        looked = time.monotonic()
        with Ledgers(self._settings) as ledgers:
            while not self._leaving.wait(LOOK_SECONDS):
                pools = ledgers.readings(datetime.now(self._settings.zone)).values()
                now = time.monotonic()
                if any(pool.limit.slots <= pool.capacity.floor.slots for pool in pools):
                    self.seconds += now - looked
                looked = now


@contextmanager
def _model_server(home: Path) -> Iterator[str]:
    """The llama.cpp server as a child; its base URL."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    argv = (sys.executable, "-P", "-m", "tickets_batch.demo.llama_server", "--port", str(port), "--slots", str(SLOTS))
    program = Program("model", "model", argv, home / "model.log", is_ready=lambda: answers_http(f"{address}/health"))
    supervisor = Supervisor(_say)
    _say(f"starting llama.cpp with {MODEL}, {SLOTS} slots ...")
    try:
        supervisor.start(program)
        yield f"{address}/v1"
    finally:
        supervisor.stop()


def _settings(home: Path, base_url: str) -> Settings:
    pool = {
        "name": "demo",
        "base_url": base_url,
        "model": MODEL,
        "engine": "llama.cpp",
        "capacity": _share(SLOTS),
        "protected": {"interactive": _share(CHAT_SLOTS), "batch": _share(FLOOR_SLOTS)},
        "signal": [{"type": "ledger"}, {"type": "engine"}],
    }
    return Settings(
        home=home / "home",
        source={"path": str(home / "tickets.csv")},
        classification=material.classification(),
        pool=[pool],
        gateway={"listen": f"{LOOPBACK}:{free_port()}"},
        worker={"processes": 1},
    )


def _share(slots: int) -> dict[str, int]:
    return {"slots": slots, "tokens": slots * CONTEXT_TOKENS}


def _options() -> Options:
    return Options(
        date="today",
        every_row=False,
        input=None,
        deadline=None,
        not_before=None,
        update=False,
        new=False,
        allow_empty=False,
    )


def _results(settings: Settings) -> dict[str, ResultRow]:
    with opened(settings) as db:
        return {row.custom_id: row for row in results.stream(db, batches.resolve(db, "latest"))}


def _show(tickets: list[material.DemoTicket], found: dict[str, ResultRow]) -> None:
    table = Table("ticket", "text", "label", "ours", box=None, pad_edge=False)
    right = 0
    for ticket in tickets:
        row = found[ticket.id]
        is_right = row.label == ticket.expected
        right += is_right
        label = row.label or f"{row.state}: {row.error}"
        table.add_row(ticket.id, ticket.summary, label, "" if is_right else ticket.expected)
    Console().print(table)
    click.echo(f"{right} of {len(tickets)} labels ({right / len(tickets):.0%}) are those that people gave by hand.")


def _say(line: str) -> None:
    click.echo(line, err=True)
