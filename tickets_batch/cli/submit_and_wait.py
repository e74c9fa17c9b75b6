"""`submit --wait`: submit, run the services if none are configured, and follow the batch to its end."""

from collections.abc import Iterator
from contextlib import contextmanager

import click

from jobs.store import batches, services
from jobs.store.batches import Batch
from jobs.store.database import Database
from tickets_batch.cli.database import opened
from tickets_batch.cli.database_file import DatabaseFile, DatabaseGone
from tickets_batch.cli.ending import blocked_to_the_end, ending_in_words, exit_code
from tickets_batch.cli.intent import Options, require_keys
from tickets_batch.cli.ledgers import Ledgers
from tickets_batch.cli.live.display import Display, display
from tickets_batch.cli.purge import remove_texts
from tickets_batch.cli.sink import warn_of_sink, write_to_sink
from tickets_batch.cli.submit import enter, show_batch
from tickets_batch.cli.wait import START_THEM, Waiting
from tickets_batch.errors import UserError
from tickets_batch.local import valkey
from tickets_batch.local.services import IN_ORDER, EmbeddedServices
from tickets_batch.settings import Settings


def submit_and_wait(settings: Settings, options: Options, wants_json: bool) -> int:
    """Submit, wait, print the batch, and write its results to the sink; the exit code that says how it ended.

    Raises UserError.
    """
    warn_of_sink(settings)
    batch = to_its_end(settings, options)
    with opened(settings) as db:
        show_batch(batch, db, settings, wants_json)
        if settings.sink is not None and batch.state.is_final:
            write_to_sink(db, batch.id, settings)
        if not settings.keep_text:  # of what ended just now the scheduler, which ends with it, may know nothing
            remove_texts(db)
    return exit_code(batch)


def to_its_end(settings: Settings, options: Options) -> Batch:
    """Submit and wait; the batch when it has ended, or is left blocked. Raises UserError."""
    _check_redis(settings)
    with opened(settings) as db:
        if settings.redis_url is None and not services.alive(db, "worker"):
            require_keys(settings)
        batch = enter(db, settings, options)
        if not batch.state.is_final:
            with (
                _goes_on(db, batch) as file,
                display(settings.zone) as shown,
                _services(settings, shown) as used,
                Ledgers(used) as ledgers,
            ):
                batch = _waiting(db, batch, ledgers, settings, shown, file).until_it_ends()
        click.echo(ending_in_words(batch, blocked_to_the_end(db, batch)), err=True)
    return batch


def _waiting(
    db: Database, batch: Batch, ledgers: Ledgers, settings: Settings, shown: Display, file: DatabaseFile
) -> Waiting:
    if settings.redis_url is not None:
        return Waiting(db, batch.id, ledgers, settings, shown, remedy=START_THEM, gives_up=True, file=file)
    logs = f"the logs in {settings.home.absolute() / 'logs'} say why"
    return Waiting(db, batch.id, ledgers, settings, shown, remedy=logs, file=file)


def _check_redis(settings: Settings) -> None:
    """Before anything is saved: is there a Redis, or a server to run here? Raises UserError."""
    if settings.redis_url is None:
        valkey.server_path()
        return
    with Ledgers(settings) as ledgers:
        ledgers.require()


@contextmanager
def _services(settings: Settings, shown: Display) -> Iterator[Settings]:
    """The settings to use while waiting: of the embedded services, running, where no Redis is configured."""
    if settings.redis_url is not None:
        yield settings
        return
    with EmbeddedServices(settings, IN_ORDER, said=shown.say) as embedded:
        yield embedded.settings


@contextmanager
def _goes_on(db: Database, batch: Batch) -> Iterator[DatabaseFile]:
    file = DatabaseFile(db)
    try:
        yield file
    except (KeyboardInterrupt, SystemExit):
        click.echo(_left_behind(db, file, batch.id), err=True)
        raise


def _left_behind(db: Database, file: DatabaseFile, batch_id: str) -> str:
    """What becomes of the batch when nobody waits for it any more, looked up."""
    try:
        file.require()
        batches.get(db, batch_id)
    except DatabaseGone as error:
        return str(error)
    except UserError as error:
        return f"whether {batch_id} is still saved cannot be seen: {error}"
    return f"{batch_id} is saved: submit --wait again, and it goes on"
