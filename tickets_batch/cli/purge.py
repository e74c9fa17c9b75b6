"""`purge`: ticket text leaves the batches that ended long ago."""

import re
from collections.abc import Iterable
from datetime import timedelta

import click

from jobs.store import purge
from jobs.store.database import Database
from jobs.store.purge import Purged
from tickets_batch.cli.database import is_missing, opened
from tickets_batch.cli.frame import Call, verb
from tickets_batch.words import counted

UNITS = {"h": "hours", "d": "days", "w": "weeks"}
NAMED = 5  # open batches named


class Age(click.ParamType[timedelta]):
    """A number of hours, days or weeks."""

    name = "age"

    def convert(self, value: object, param: click.Parameter | None, context: click.Context | None) -> timedelta:
        """Raises BadParameter, which says how it is written."""
        found = re.fullmatch(r"(\d{1,5})([hdw])", str(value), re.ASCII)
        if found is None:
            self.fail(f"{value!r} is no age: write a number and h, d or w, as in 30d.", param, context)
        return timedelta(**{UNITS[found[2]]: int(found[1])})


@verb()
@click.option(
    "--older-than", type=Age(), required=True, metavar="AGE", help="Since the batch ended, as in 30d, 12h or 4w."
)
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@click.pass_obj
def purge_command(call: Call, older_than: timedelta, dry_run: bool) -> None:
    """Remove the text of tickets whose batch ended longer ago than AGE; ids, labels, counts and costs stay.

    With the text goes what may quote it: model answers that were no label, the details of errors, and the list of rows
    that could not be used. Open batches are left alone, and the same tickets are still known when they are submitted
    again.
    """
    settings = call.settings()
    if is_missing(settings):
        _tell("there is no batch yet: nothing to remove")
        return
    with opened(settings) as db:
        before = db.now() - older_than
        if dry_run:
            found: Iterable[Purged] = (purge.foresee(db, batch_id) for batch_id in purge.due(db, before))
        else:
            found = purge.purge_ended(db, older_than)
        seen = _tell_all(found, "would be removed" if dry_run else "removed", db)
        if passed_over := [batch_id for batch_id in purge.due(db, before) if batch_id not in seen]:
            _tell(f"another purge is at work on {_named(passed_over)}, or broke off just now: purge again in a minute")
        if still_open := purge.left_open(db, before):
            _tell(f"left alone, for they have not ended: {_named(still_open)}; cancel ends one")


def remove_texts(db: Database) -> None:
    """Remove the text of everything that has ended."""
    for done in purge.purge_ended(db, timedelta(0)):
        if not done.is_nothing:
            _tell(f"{done.batch_id}: {_in_words(done)} removed, for keep_text is false")


def _tell_all(found: Iterable[Purged], how: str, db: Database) -> set[str]:
    """Tell of each, then of all together; the batches that there were."""
    texts = text_bytes = 0
    seen = set()
    for one in found:
        seen.add(one.batch_id)
        texts, text_bytes = texts + one.texts, text_bytes + one.text_bytes
        if not one.is_whole:
            _tell(f"{one.batch_id}: {_in_words(one)} {how}, then a submit or a retry came first: purge again later")
        elif not one.is_nothing:
            _tell(f"{one.batch_id}: {_in_words(one)} {how}")
    _tell(f"{counted(texts, 'text')} of tickets {how}, {text_bytes / 1e6:,.1f} MB")
    if texts and db.dialect == "sqlite" and how == "removed":
        _tell(
            f"the place in {db.url.database} is used for what comes next; to give it back to the disk, run VACUUM on "
            "it while nothing else works with it"
        )
    return seen


def _in_words(purged: Purged) -> str:
    counts = [
        (purged.answers, "model answer"),
        (purged.details, "error detail"),
        (purged.rejections, "rejected row"),
    ]
    shown = [counted(count, noun) for count, noun in counts if count]
    return ", ".join([f"text of {counted(purged.texts, 'ticket')}", *shown])


def _named(ids: list[str]) -> str:
    more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
    return ", ".join(ids[:NAMED]) + more


def _tell(line: str) -> None:
    click.echo(line, err=True)
