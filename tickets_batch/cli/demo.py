"""`demo`: sixty tickets on a real model on this machine, through the whole stack, while people chat with it."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from jobs.store import batches, results
from jobs.store.results import ResultRow
from tickets_batch.cli.database import opened
from tickets_batch.cli.demo_chat import BesideChat, warm_up
from tickets_batch.cli.ending import exit_code
from tickets_batch.cli.frame import Call, verb
from tickets_batch.demo import material
from tickets_batch.demo.felt import batch_in_words, chat_in_words
from tickets_batch.demo.llama_server import CONTEXT_TOKENS, MODEL, find_weights
from tickets_batch.local.child import Program
from tickets_batch.local.ports import LOOPBACK, answers_http, free_port
from tickets_batch.local.supervisor import Supervisor
from tickets_batch.settings import Settings

SLOTS, CHAT_SLOTS, FLOOR_SLOTS = 4, 2, 1
TARGET_SECONDS = 0.8
TARGET_PER_TTFT = 5.0  # on a slow machine: what can be held there
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
            first = warm_up(base_url, MODEL, material.spec(), SLOTS - CHAT_SLOTS)
            settings = _settings(home, base_url, first.ttft_seconds or 0.0)
            tickets = material.write_tickets(home / "tickets.csv", datetime.now(settings.zone).date())
            done = BesideChat.run(settings, first.seconds)
        _show(tickets, _results(settings))
    felt = chat_in_words(done.alone, done.beside)
    got = batch_in_words(done.got, slots=SLOTS, most_slots=SLOTS - CHAT_SLOTS, floor_slots=FLOOR_SLOTS)
    click.echo("\n".join(("", *felt, *got, "", HOW_TO_POINT_ELSEWHERE)))
    return exit_code(done.batch)


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


def _settings(home: Path, base_url: str, ttft_seconds: float) -> Settings:
    pool = {
        "name": "demo",
        "base_url": base_url,
        "model": MODEL,
        "engine": "llama.cpp",
        "capacity": _share(SLOTS),
        "protected": {"interactive": _share(CHAT_SLOTS), "batch": _share(FLOOR_SLOTS)},
        "ttft_target_seconds": max(TARGET_SECONDS, TARGET_PER_TTFT * ttft_seconds),
        "signal": [{"type": "ledger"}, {"type": "engine"}],
    }
    return Settings(
        home=home / "home",
        source={"path": str(home / "tickets.csv")},
        classification=material.classification(),
        pool=[pool],
        gateway={"listen": f"{LOOPBACK}:{free_port()}"},
        worker={"processes": 1},
        scheduler={"holdout": 0.0},  # it may last no longer than a held-out minute
    )


def _share(slots: int) -> dict[str, int]:
    return {"slots": slots, "tokens": slots * CONTEXT_TOKENS}


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
