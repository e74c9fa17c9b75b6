"""`status` and `results`: what only reads."""

import json
import sys
from pathlib import Path

import click

from jobs.export import FORMATS, Format, format_of, write_results
from jobs.store import batches, events, results, services
from jobs.store.batches import Batch
from jobs.store.database import Database
from tickets_batch.cli.database import existing, is_missing, no_batch_in
from tickets_batch.cli.ending import blocked_to_the_end
from tickets_batch.cli.frame import BATCH_WORDS, Call, batch_argument, verb
from tickets_batch.cli.ledgers import Ledgers, capacities
from tickets_batch.cli.prospect import Prospect
from tickets_batch.cli.silence import silence_in_words
from tickets_batch.cli.text import Surroundings, batch_in_words, batches_in_words
from tickets_batch.cli.view import as_json
from tickets_batch.settings import Settings
from tickets_batch.words import counted, printable

SHOWN_BATCHES = 50
SHOWN_CHANGES = 3


@verb(epilog=BATCH_WORDS)
@click.argument("batch", required=False)
@click.option("--follow", is_flag=True, help="Stay, and show how BATCH (default: latest) comes along until it ends.")
@click.option("--json", "wants_json", is_flag=True, help="One JSON object on stdout.")
@click.pass_obj
def status_command(call: Call, batch: str | None, follow: bool, wants_json: bool) -> None:
    """Show all batches, or one."""
    settings = call.settings()
    if batch is None and not follow:
        _show_all(settings, wants_json)
        return
    with existing(settings) as db, Ledgers(settings) as ledgers:
        batch_id = batches.resolve(db, batch or "latest")
        if follow:
            from tickets_batch.cli.wait import follow_to_its_end

            follow_to_its_end(db, batch_id, ledgers, settings)
        _show_one(db, batch_id, ledgers, settings, wants_json)


@verb(epilog=BATCH_WORDS)
@batch_argument
@click.option("--format", "wanted", type=click.Choice(FORMATS), help="Default: by the file's name, else csv.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Not stdout.")
@click.option("--to-sink", is_flag=True, help="Into the table of the settings' [sink] instead; safe to repeat.")
@click.pass_obj
def results_command(call: Call, batch: str, wanted: Format | None, output: Path | None, to_sink: bool) -> None:
    """Write one row per ticket of BATCH, as CSV or JSON lines. The database keeps everything."""
    if to_sink:
        if wanted or output:
            raise click.UsageError("--to-sink writes to a table: leave --format and -o out.")
        from tickets_batch.cli.sink import write_to_sink

        settings = call.settings()
        with existing(settings) as db:
            write_to_sink(db, batches.resolve(db, batch), settings)
        return
    form = wanted or (format_of(output) if output else "csv")
    with existing(call.settings()) as db:
        batch_id = batches.resolve(db, batch)
        count = write_results(results.stream(db, batch_id), form, output or sys.stdout)
    if output:
        click.echo(f"{batch_id}: {counted(count, 'row')} in {output}", err=True)


def _show_all(settings: Settings, wants_json: bool) -> None:
    if is_missing(settings):
        click.echo('{"data": []}' if wants_json else no_batch_in(settings))
        return
    with existing(settings) as db, Ledgers(settings) as ledgers:
        found = batches.newest_first(db, SHOWN_BATCHES)
        if wants_json:
            pools, now, configured = ledgers.readings(db.now()), db.now(), capacities(settings)
            data = [as_json(batch, pools, _ahead(db, batch), now, configured) for batch in found]
            click.echo(json.dumps({"data": data}, indent=2))
        elif found:
            click.echo(_printable(batches_in_words(found, settings.zone)))
        else:
            click.echo(no_batch_in(settings))


def _ahead(db: Database, batch: Batch) -> Prospect:
    """What is not yet over: what came of forecasts is told of one batch at a time."""
    return Prospect() if batch.state.is_final else Prospect.of(db, batch)


def _show_one(db: Database, batch_id: str, ledgers: Ledgers, settings: Settings, wants_json: bool) -> None:
    batch = batches.get(db, batch_id)
    pools = ledgers.readings(db.now())
    if wants_json:
        click.echo(json.dumps(as_json(batch, pools, Prospect.of(db, batch), db.now(), capacities(settings)), indent=2))
        return
    changes = {name: events.of_pool(db, name, SHOWN_CHANGES) for name in batch.pools}
    around = Surroundings(
        Prospect.of(db, batch),
        pools,
        ledgers.why_away,
        changes,
        services.alive(db),
        silence=silence_in_words(db, batch),
        was_blocked=blocked_to_the_end(db, batch),
    )
    click.echo(_printable(batch_in_words(batch, around, settings.zone, db.now())))


def _printable(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))
