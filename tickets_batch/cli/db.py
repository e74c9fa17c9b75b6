"""`db upgrade`."""

import click

from tickets_batch.cli.frame import HELP, Call, VerbGroup
from tickets_batch.local.home import Home


@click.group(cls=VerbGroup, context_settings=HELP)
def db_command() -> None:
    """Look after the database."""


@db_command.command()
@click.pass_obj
def upgrade(call: Call) -> None:
    """Make the tables, or bring them up to this program's version. Doing it twice does no harm."""
    from jobs.store import schema

    settings = call.settings()
    if settings.database_url is None:
        Home(settings.home).make()
    schema.upgrade(settings.effective_database_url)
    click.echo(f"the database is at version {schema.VERSION}", err=True)
