"""Writing results to the table of `[sink]`: at the end of `submit --wait`, and by `results --to-sink`."""

import click

from jobs.sink import Sink
from jobs.store import results
from jobs.store.database import Database
from tickets_batch.errors import SettingsError, UserError
from tickets_batch.settings import Settings
from tickets_batch.words import counted


def warn_of_sink(settings: Settings) -> None:
    """Tell on stderr, while there is time to mend it, that results could not be written now.

    Raises SettingsError where what the URL refers to is not there: nothing that happens until then would mend it.
    """
    if settings.sink is None:
        return
    try:
        Sink(settings.sink).check()
    except SettingsError:
        raise
    except UserError as error:
        click.echo(f"results could not be written now: {error}", err=True)


def write_to_sink(db: Database, batch_id: str, settings: Settings) -> None:
    """Write what has ended of the batch, and tell on stderr. Raises UserError, SettingsError."""
    if settings.sink is None:
        raise SettingsError("there is no table to write to: set [sink] url and table in tickets-batch.toml")
    try:
        sink = Sink(settings.sink)
        count = sink.write(results.stream(db, batch_id), batch_id)
    except UserError as error:
        kind = SettingsError if isinstance(error, SettingsError) else UserError
        raise kind(
            f"{error}; no result was written, all are kept: tickets-batch results {batch_id} --to-sink writes them"
        ) from error
    click.echo(f"{batch_id}: results of {counted(count, 'ticket')} in {sink.where}", err=True)
