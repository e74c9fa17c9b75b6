"""`cancel`, `retry`, `pause` and `resume`."""

import click

from tickets_batch.cli.database import existing
from tickets_batch.cli.frame import BATCH_WORDS, Call, batch_argument, verb
from tickets_batch.cli.times import deadline_from, oddity, shown_instant
from tickets_batch.words import counted


@verb(epilog=BATCH_WORDS)
@batch_argument
@click.pass_obj
def cancel_command(call: Call, batch: str) -> None:
    """End BATCH. What is done stays, what is in flight is withdrawn, the rest is cancelled."""
    from jobs.store import batches, moves

    with existing(call.settings()) as db:
        batch_id = batches.resolve(db, batch)
        moves.cancel(db, batch_id)
        now = batches.get(db, batch_id)
    held = f", taking back {now.running:,} that workers hold" if now.running else ""
    _tell(f"{batch_id} is {now.state}: {now.succeeded:,} of {counted(now.total, 'ticket')} done{held}")


@verb(epilog=BATCH_WORDS)
@batch_argument
@click.option("--deadline", metavar="HH:MM|none", help="The new deadline; default: the deadline of the settings.")
@click.pass_obj
def retry_command(call: Call, batch: str, deadline: str | None) -> None:
    """Put BATCH's failed and expired tickets back to work, under a new deadline. What succeeded stays."""
    from jobs.store import batches, moves, texts

    settings = call.settings()
    with existing(settings) as db:
        batch_id = batches.resolve(db, batch)
        asked, now = deadline or settings.deadline, db.now()
        deadline_at = deadline_from(asked, settings.zone, now)
        count = moves.retry(db, batch_id, deadline_at)
        without_text = texts.missing(db, batch_id)
    until = f", deadline {shown_instant(deadline_at, settings.zone)}" if deadline_at else ""
    _tell(f"{batch_id}: {counted(count, 'ticket')} back to work{until}")
    if without_text:
        _tell(f"{counted(without_text, 'ticket')} cannot be tried again, for the text was removed")
    if odd := oddity("the deadline", asked, settings.zone, now):
        _tell(odd)


@verb(epilog=BATCH_WORDS)
@batch_argument
@click.pass_obj
def pause_command(call: Call, batch: str) -> None:
    """Let BATCH rest until `resume`: nothing new starts, and what is in flight is finished."""
    from jobs.store import batches, moves

    with existing(call.settings()) as db:
        batch_id = batches.resolve(db, batch)
        moves.pause(db, batch_id)
    _tell(f"{batch_id} is paused: tickets-batch resume {batch_id} lets it go on")


@verb(epilog=BATCH_WORDS)
@batch_argument
@click.pass_obj
def resume_command(call: Call, batch: str) -> None:
    """Let a paused BATCH go on."""
    from jobs.store import batches, moves

    with existing(call.settings()) as db:
        batch_id = batches.resolve(db, batch)
        moves.resume(db, batch_id)
    _tell(f"{batch_id} goes on")


def _tell(line: str) -> None:
    click.echo(line, err=True)
