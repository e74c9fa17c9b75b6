"""`demo`: sixty tickets on a real model on this machine, through the whole stack."""

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
from tickets_batch.cli.ending import exit_code
from tickets_batch.cli.frame import Call, verb
from tickets_batch.cli.intent import Options
from tickets_batch.cli.submit_and_wait import to_its_end
from tickets_batch.demo import material
from tickets_batch.demo.llama_server import MODEL, find_weights
from tickets_batch.local.child import Program
from tickets_batch.local.ports import answers_http, free_port
from tickets_batch.local.supervisor import Supervisor
from tickets_batch.settings import Settings

SLOTS = 4
HOW_TO_POINT_ELSEWHERE = """\
That was a model of 135 million parameters, which stands in for yours: it shows the machinery, not the labels you can
expect. To point it at your own model and tickets:
  export OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=...
  tickets-batch submit --input tickets.csv --all --model NAME --labels billing,shipping,technical --wait"""


@verb()
@click.pass_obj
def demo_command(call: Call) -> int:
    """Classify sixty tickets on a small real model on this machine.

    They go through queue, admission and database like any others. Takes a minute or two on two cores, needs no network
    and no settings, and leaves nothing behind.
    """
    find_weights()
    with tempfile.TemporaryDirectory(prefix="tickets-batch-demo-") as folder:
        home = Path(folder)
        with _model_server(home) as base_url:
            settings = _settings(home, base_url)
            tickets = material.write_tickets(home / "tickets.csv", datetime.now(settings.zone).date())
            batch = to_its_end(settings, _options())
        _show(tickets, _results(settings))
    return exit_code(batch)


@contextmanager
def _model_server(home: Path) -> Iterator[str]:
    """The llama.cpp server as a child; its base URL."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    argv = (sys.executable, "-P", "-m", "tickets_batch.demo.llama_server", "--port", str(port), "--slots", str(SLOTS))
    program = Program("model", "model", argv, home / "model.log", is_ready=lambda: answers_http(f"{address}/health"))
    supervisor = Supervisor(lambda line: click.echo(line, err=True))
    click.echo(f"starting llama.cpp with {MODEL}, {SLOTS} slots ...", err=True)
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
        "capacity": {"slots": SLOTS, "tokens": SLOTS * 2048},
        "protected": {"batch": {"slots": 1, "tokens": 2048}},
    }
    return Settings(
        home=home / "home",
        source={"path": str(home / "tickets.csv")},
        classification=material.classification(),
        pool=[pool],
    )


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
    click.echo(HOW_TO_POINT_ELSEWHERE)
