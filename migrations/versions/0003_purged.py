"""When the text of a batch's tickets was removed."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("batches", sa.Column("purged_at", sa.DateTime(timezone=True)))
