"""What a forecast is made from, every forecast, and what was measured of each pool."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # only INTEGER names SQLite's rowid
INSTANT = sa.DateTime(timezone=True)
UTF8_BYTES = {"sqlite": "length(CAST({0} AS BLOB))", "postgresql": "octet_length(convert_to({0}, 'UTF8'))"}


def upgrade() -> None:
    _text_bytes()
    _text_bytes_left()
    op.create_table(
        "forecasts",
        sa.Column("batch_id", sa.String(length=40), nullable=False),
        sa.Column("at", INSTANT, nullable=False),
        sa.Column("jobs_left", sa.BigInteger(), nullable=False),
        sa.Column("tokens_left", sa.BigInteger(), nullable=False),
        sa.Column("achieved_rate", sa.Float()),
        sa.Column("needed_rate", sa.Float()),
        sa.Column("floor_rate", sa.Float()),
        sa.Column("full_rate", sa.Float()),
        sa.Column("chat_slots", sa.Float()),
        sa.Column("p50_at", INSTANT),
        sa.Column("p90_at", INSTANT),
        sa.Column("floor_at", INSTANT),
        sa.Column("pace", sa.String(length=20)),
        sa.ForeignKeyConstraint(["batch_id"], ["batches.id"], name="fk_forecasts_batch_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("batch_id", "at", name="pk_forecasts"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "curves",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("pool", sa.String(length=40), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("measured_at", INSTANT, nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_curves"),
    )
    op.create_index("ix_curves_pool", "curves", ["pool"])


# Columns are added by statements of their own: to build a table anew, as Alembic does for SQLite, is to drop it, and
# with it by their foreign keys all rows that belong to it.


def _text_bytes() -> None:
    op.execute("ALTER TABLE jobs ADD COLUMN text_bytes INTEGER DEFAULT 0 NOT NULL")
    length = UTF8_BYTES[op.get_context().dialect.name]
    op.execute(
        f"UPDATE jobs SET text_bytes = {length.format('tickets.subject')} + {length.format('tickets.body')} "  # noqa: S608 - no value in it
        "FROM tickets WHERE tickets.job_id = jobs.id"
    )


def _text_bytes_left() -> None:
    op.execute(
        "ALTER TABLE batches ADD COLUMN text_bytes_left BIGINT DEFAULT 0 NOT NULL "
        "CONSTRAINT ck_batches_text_bytes_left CHECK (text_bytes_left >= 0)"
    )
    op.execute(
        "UPDATE batches SET text_bytes_left = coalesce((SELECT sum(jobs.text_bytes) FROM jobs "
        "WHERE jobs.batch_id = batches.id AND jobs.state IN ('pending', 'running')), 0)"
    )
