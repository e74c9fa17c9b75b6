"""`simulate`: a whole night in virtual time, with the rules that production admits by."""

import json
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import click

from jobs.days import next_occurrence
from jobs.store import batches
from jobs.store.batches import Batch
from jobs.store.database import Database
from scheduler.simulation.shapes import SHAPES, Arrival
from tickets_batch.cli import exit_codes
from tickets_batch.cli.blind import is_blind
from tickets_batch.cli.database import is_missing, opened
from tickets_batch.cli.frame import Call, verb
from tickets_batch.cli.intent import require_pool
from tickets_batch.cli.simulate_inputs import (
    LONGEST,
    NOBODY,
    Engine,
    Tickets,
    chat_of,
    chat_of_night,
    night_of,
    site_of,
    under,
)
from tickets_batch.cli.simulate_play import Prepared, play
from tickets_batch.cli.simulate_sweep import KEYS, swept
from tickets_batch.cli.simulate_text import as_json, in_words, table, write_timeline
from tickets_batch.cli.times import deadline_from
from tickets_batch.errors import SettingsError, UserError
from tickets_batch.settings import Pool, Settings
from tickets_batch.words import counted


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked on the command line."""

    pool: str | None
    tickets: int | None
    lengths: tuple[float, float] | None
    chat: str | None
    replay: str | None
    start: str | None
    deadline: str | None
    seed: int


def _lengths(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise click.BadParameter(f"{text!r} is no pair of lengths: write for example 500,40.", context, parameter)
    return float(parts[0]), float(parts[1])


@verb(epilog=f"--sweep takes {', '.join(KEYS)}. A forecast in it knows of no earlier night.")
@click.option("--pool", metavar="NAME", help="The pool; default: the first of the settings, or the replayed night's.")
@click.option("--tickets", type=click.IntRange(min=1), metavar="N", help="How many; with --replay as many as then.")
@click.option(
    "--ticket-tokens",
    "lengths",
    callback=_lengths,
    metavar="IN,OUT",
    help="Their mean lengths, instead of what was measured.",
)
@click.option("--chat", metavar="FILE.csv|SHAPE", help=f"Who chats: a trace, or {', '.join(SHAPES)}, {NOBODY}.")
@click.option("--replay", metavar="BATCH", help="Play the night of this batch again: its start, its chat, its tickets.")
@click.option("--start", metavar="HH:MM", help="Default: now.")
@click.option("--deadline", metavar="HH:MM|none", help="Default: as in the settings, or as of the replayed batch.")
@click.option(
    "--sweep", metavar="KEY=V1,V2,...", help="One night for each value of this setting of the pool, as a table."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Another one is another night of the same kind.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The timeline, a row for each ten seconds: .csv or .jsonl.",
)
@click.option("--json", "wants_json", is_flag=True, help="One JSON object on stdout.")
@click.pass_obj
def simulate_command(
    call: Call,
    pool: str | None,
    tickets: int | None,
    lengths: tuple[float, float] | None,
    chat: str | None,
    replay: str | None,
    start: str | None,
    deadline: str | None,
    sweep: str | None,
    seed: int,
    output: Path | None,
    wants_json: bool,
) -> int:
    """Play a whole night in virtual time, with the rules that production admits by and a model of the engine.

    The chat is seen as the ledger sees it. The engine is as fast as it was measured by plan --measure, else as a 7B
    model on one middle GPU.
    """
    if (chat is None) == (replay is None):
        raise click.UsageError(f"Say who chats: --chat FILE.csv, --chat SHAPE, --chat {NOBODY}, or --replay BATCH.")
    if replay is None and tickets is None:
        raise click.UsageError("Say how many tickets: --tickets N.")
    if replay is not None and start is not None:
        raise click.UsageError("--replay begins when that night began: leave --start out.")
    if sweep is not None and output is not None:
        raise click.UsageError("-o writes the timeline of one night: leave --sweep or -o out.")
    settings = call.settings()
    require_pool(settings)
    asked = Asked(pool, tickets, lengths, chat, replay, start, deadline, seed)
    prepared = _prepared(settings, asked)
    if prepared.is_blind:
        click.echo(
            f"pool {prepared.night.site.name} has no signal: batch is blind to the chat there, and stays at its floor "
            "all night, as it would in a real one; add a [[pool.signal]]",
            err=True,
        )
    if sweep is not None:
        _sweep(settings, prepared, sweep, wants_json)
        return exit_codes.COMPLETED
    (played,) = play([prepared])
    if wants_json:
        click.echo(json.dumps(as_json(played), indent=2))
    else:
        click.echo("\n".join(in_words(played, settings.zone)))
    if output is not None:
        count = write_timeline(played, output)
        click.echo(f"{counted(count, 'row')} in {output}", err=True)
    return exit_codes.COMPLETED


def _sweep(settings: Settings, prepared: Prepared, sweep: str, wants_json: bool) -> None:
    pool = next(pool for pool in settings.pool if pool.name == prepared.night.site.name)
    key, pools = swept(pool, sweep)
    nights = [
        replace(prepared, night=under(prepared.night, changed, settings), is_blind=is_blind(changed))
        for _, changed in pools
    ]
    found = list(zip((value for value, _ in pools), play(nights), strict=True))
    if wants_json:
        click.echo(
            json.dumps({"key": key, "data": [{"value": value, **as_json(one)} for value, one in found]}, indent=2)
        )
    else:
        click.echo("\n".join(table(key, found, settings.zone)))


# --- what is played


def _prepared(settings: Settings, asked: Asked) -> Prepared:
    with ExitStack() as stack:
        db = None if is_missing(settings) else stack.enter_context(opened(settings))
        batch = _batch(db, asked.replay)
        pool = _pool(settings, asked.pool, batch)
        now = datetime.now(UTC)
        if batch is not None:
            starts_at = batch.started_at or batch.created_at
            deadline_at = (
                deadline_from(asked.deadline, settings.zone, starts_at) if asked.deadline else batch.deadline_at
            )
        else:
            starts_at = next_occurrence(asked.start, settings.zone, now) if asked.start else now
            deadline_at = deadline_from(asked.deadline or settings.deadline, settings.zone, starts_at)
        engine = Engine.of(pool, settings, db)
        seconds = ((deadline_at or starts_at + LONGEST) - starts_at).total_seconds()
        chat, chat_origin = _chat(settings, asked, pool, engine, db, batch, starts_at, seconds)
        tickets = Tickets.of(settings, _count(asked, batch), asked.lengths, engine, batch, asked.seed)
    night = night_of(pool, settings, engine, tickets.tickets, chat, starts_at, deadline_at, asked.seed)
    return Prepared(night, engine, tickets, chat_origin, deadline_at, is_blind(pool))


def _batch(db: Database | None, replay: str | None) -> Batch | None:
    if replay is None:
        return None
    if db is None:
        raise UserError("no batch is stored here yet: there is no night to replay")
    batch = batches.get(db, batches.resolve(db, replay))
    if batch.deadline_at is not None and batch.deadline_at <= (batch.started_at or batch.created_at):
        raise UserError(f"{batch.id} began after its deadline: there is no night to replay")
    return batch


def _pool(settings: Settings, name: str | None, batch: Batch | None) -> Pool:
    known = {pool.name: pool for pool in settings.pool}
    if name is None and batch is not None:
        name = next((used for used in batch.pools if used in known), None)
        if name is None:
            raise SettingsError(f"the settings have none of the pools of {batch.id}: {', '.join(batch.pools)}")
    if name is None:
        return settings.pool[0]
    if name not in known:
        raise SettingsError(f"there is no pool {name}; the settings have {', '.join(known)}")
    return known[name]


def _chat(
    settings: Settings,
    asked: Asked,
    pool: Pool,
    engine: Engine,
    db: Database | None,
    batch: Batch | None,
    starts_at: datetime,
    seconds: float,
) -> tuple[list[Arrival], str]:
    if batch is not None and db is not None:
        return chat_of_night(batch, pool, engine, db, starts_at, seconds, asked.seed)
    return chat_of(asked.chat or NOBODY, site_of(pool, settings, engine), seconds, asked.seed)


def _count(asked: Asked, batch: Batch | None) -> int:
    if asked.tickets is not None:
        return asked.tickets
    count = batch.total - batch.reused if batch is not None else 0
    if count < 1:
        raise UserError("that batch asked the model nothing: say --tickets N")
    return count
