"""`submit`: a day's tickets become a batch, or top one up."""

import json
from pathlib import Path
from typing import Any, get_args

import click

from jobs.store import batches, services, submissions
from jobs.store.batches import Batch
from jobs.store.database import Database
from jobs.store.submissions import Submission
from tickets_batch.cli import exit_codes
from tickets_batch.cli.database import opened
from tickets_batch.cli.frame import Call, verb
from tickets_batch.cli.intent import Intent, Options
from tickets_batch.cli.kept import kept_in_words
from tickets_batch.cli.ledgers import Ledgers, capacities
from tickets_batch.cli.prospect import Prospect
from tickets_batch.cli.rows import refuse_day_of_all
from tickets_batch.cli.times import shown_instant
from tickets_batch.cli.view import as_json
from tickets_batch.errors import UserError
from tickets_batch.settings import ExportFormat, Settings
from tickets_batch.words import counted

SHOWN_REJECTIONS = 10
SHOWN_IDS = 5


@verb()
@click.option("--date", default="today", show_default=True, metavar="today|yesterday|YYYY-MM-DD", help="Whose tickets.")
@click.option("--all", "every_row", is_flag=True, help="Take every row, whatever its date.")
@click.option("--input", type=click.Path(path_type=Path), metavar="FILE", help="The source, instead of the settings'.")
@click.option(
    "--format",
    type=click.Choice(get_args(ExportFormat)),
    help="Whose export the source is: its columns then need no naming.",
)
@click.option("--deadline", metavar="HH:MM|none", help="When the work must be done; default: as in the settings.")
@click.option("--not-before", metavar="HH:MM", help="Do not begin before.")
@click.option(
    "--pool",
    "pools",
    metavar="NAME",
    multiple=True,
    help="A pool to use, again for more, in this order; default: all of the settings.",
)
@click.option("--update", is_flag=True, help="Take tickets whose text has changed since they were submitted.")
@click.option("--new", is_flag=True, help="Make a second batch of the same source and date.")
@click.option("--allow-empty", is_flag=True, help="A source without tickets is fine.")
@click.option("--wait", is_flag=True, help="Follow the batch to its end; runs the services if none are configured.")
@click.option("--dry-run", is_flag=True, help="Only show what is new, in which batch, with tokens and time.")
@click.option("--model", metavar="NAME", help="The model, instead of the settings'.")
@click.option("--labels", metavar="A,B,C", help="The labels, instead of the settings'.")
@click.option("--json", "wants_json", is_flag=True, help="One JSON object on stdout.")
@click.pass_obj
def submit_command(
    call: Call, /, wait: bool, dry_run: bool, model: str | None, labels: str | None, wants_json: bool, **options: Any
) -> int:
    """Create the batch of a day's tickets, or add to it what is new.

    Prints the batch's id. Without --wait the batch is only saved: a running scheduler and its workers take it up.
    With --wait the exit code says how it ended: 0 completed, 3 some tickets failed, 4 deadline passed, 5 cancelled,
    6 blocked.
    """
    refuse_day_of_all(click.get_current_context())
    settings = call.settings(model=model, labels=labels)
    asked = Options(**options)
    if dry_run:
        from tickets_batch.cli.dry_run import dry_run as show

        show(settings, asked, wants_json)
        return exit_codes.COMPLETED
    if wait:
        from tickets_batch.cli.submit_and_wait import submit_and_wait

        return submit_and_wait(settings, asked, wants_json)
    with opened(settings) as db:
        batch = enter(db, settings, asked)
        show_batch(batch, db, settings, wants_json)
        if not batch.state.is_final and not services.alive(db, "scheduler"):
            raise UserError(
                f"{batch.id} is saved, but nothing is running: start tickets-batch up, or submit again with --wait"
            )
    return exit_codes.COMPLETED


def enter(db: Database, settings: Settings, options: Options) -> Batch:
    """Submit, and tell on stderr what became of the source; the batch as it is now. Raises UserError."""
    intent = Intent.of(settings, options, db.now())
    done = submissions.submit(db, intent.request(), intent.source)
    batch = batches.get(db, done.batch_id)
    beside = submissions.open_beside(db, intent.request(), batch.id) if done.created else []
    for line in (*intent.remarks, *intent.source.notes, *_in_words(done, batch, intent), *map(_goes_on, beside)):
        click.echo(line, err=True)
    return batch


def show_batch(batch: Batch, db: Database, settings: Settings, wants_json: bool) -> None:
    """The batch on stdout: its id, or the object that `status --json` prints."""
    if not wants_json:
        click.echo(batch.id)
        return
    with Ledgers(settings) as ledgers:
        pools = ledgers.readings(db.now())
        click.echo(json.dumps(as_json(batch, pools, Prospect.of(db, batch), db.now(), capacities(settings)), indent=2))


def _in_words(done: Submission, batch: Batch, intent: Intent) -> list[str]:
    how = "created" if done.created else "opened again" if done.reopened else "topped up"
    counts = [f"{counted(done.added, 'ticket')} added"]
    counts += [f"{done.reused:,} of them answered from an earlier batch"] if done.reused else []
    counts += [f"{done.already:,} there already"] if done.already else []
    zone = intent.settings.zone
    until = f", deadline {shown_instant(batch.deadline_at, zone)}" if batch.deadline_at else ""
    lines = [f"{done.batch_id} {how} from {intent.source.describe()}, {intent.whose}: {', '.join(counts)}{until}"]
    lines += kept_in_words(batch, intent)
    if intent.source.outside_day:
        lines.append(f"{counted(intent.source.outside_day, 'row')} of other days left out: --all takes them too")
    if done.updated:
        lines.append(f"{counted(done.updated, 'changed ticket')} taken")
    if left := done.changed - done.updated - len(done.busy_ids):
        lines.append(f"another text now: {counted(left, 'ticket')} ({_some(done.changed_ids)}); --update takes them")
    if done.busy_ids:
        lines.append(
            f"being worked on, with their old text: {counted(len(done.busy_ids), 'ticket')} ({_some(done.busy_ids)})"
        )
    if done.rejected:
        lines.append(f"{counted(done.rejected, 'row')} cannot be used:")
        lines += [f"  line {row.line}: {row.reason}" for row in done.rejections[:SHOWN_REJECTIONS]]
        lines += ["  ..."] if done.rejected > SHOWN_REJECTIONS else []
    return lines


def _goes_on(batch_id: str) -> str:
    return f"{batch_id} of the same source and date goes on beside it: tickets-batch cancel {batch_id} ends it"


def _some(ids: tuple[str, ...]) -> str:
    return ", ".join(ids[:SHOWN_IDS]) + (", ..." if len(ids) > SHOWN_IDS else "")
