"""Runs the migrations, over the connection of `jobs.store.schema.upgrade` or over that of `alembic -x url=...`."""

from alembic import context
from sqlalchemy import Connection

from jobs.store.database import Database
from jobs.tables import metadata


def run(connection: Connection) -> None:
    """All that is to run, in the transaction that is already open."""
    context.configure(
        connection=connection,
        target_metadata=metadata,
        compare_server_default=True,
        render_as_batch=connection.dialect.name == "sqlite",  # SQLite alters a table by building it anew
        transactional_ddl=True,  # true of SQLite too, since the connection sends its own BEGIN
    )
    context.run_migrations()


given: Connection | None = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    database = Database.open(context.get_x_argument(as_dictionary=True)["url"])
    with database.begin() as connection:
        run(connection)
    database.dispose()
