"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # only INTEGER names SQLite's rowid
INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "batches",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("date", sa.Date()),
        sa.Column("zone", sa.String(length=64), nullable=False),
        sa.Column("source_key", sa.String(length=128), nullable=False),
        sa.Column("date_key", sa.String(length=10), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("spec_hash", sa.String(length=64), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("pools", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("blocked", sa.Text()),
        sa.Column("probe_at", INSTANT),
        sa.Column("probe_token", sa.String(length=32)),
        sa.Column("probes", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("not_before", INSTANT),
        sa.Column("deadline_at", INSTANT),
        sa.Column("started_at", INSTANT),
        sa.Column("finished_at", INSTANT),
        sa.Column("first_job_id", sa.BigInteger()),
        sa.Column("last_job_id", sa.BigInteger()),
        sa.Column("loader_token", sa.String(length=32)),
        sa.Column("loader_expires_at", INSTANT),
        sa.Column("loader", sa.JSON()),
        sa.Column("total", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("pending", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("running", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("succeeded", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("failed", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("expired", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("cancelled", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("reused", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("rejected", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("yields", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("withdrawn", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("wasted_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint(
            "(state IN ('completed', 'expired', 'cancelled')) = (finished_at IS NOT NULL)",
            name=op.f("ck_batches_finished"),
        ),
        sa.CheckConstraint(
            "state IN ('loading', 'running', 'paused', 'cancelling', 'completed', 'expired', 'cancelled')",
            name=op.f("ck_batches_state"),
        ),
        sa.CheckConstraint("(loader_token IS NULL) = (loader_expires_at IS NULL)", name=op.f("ck_batches_loader")),
        sa.CheckConstraint("blocked IS NULL OR probe_at IS NOT NULL", name=op.f("ck_batches_blocked_is_probed")),
        sa.CheckConstraint(
            "pending + running + succeeded + failed + expired + cancelled = total",
            name=op.f("ck_batches_counters_add_up"),
        ),
        sa.CheckConstraint(
            "pending >= 0 AND running >= 0 AND succeeded >= 0 AND failed >= 0 AND expired >= 0 "
            "AND cancelled >= 0 AND reused >= 0 AND rejected >= 0 AND yields >= 0 AND withdrawn >= 0 "
            "AND prompt_tokens >= 0 AND completion_tokens >= 0 AND wasted_tokens >= 0",
            name=op.f("ck_batches_not_negative"),
        ),
        sa.PrimaryKeyConstraint("id", name="pk_batches"),
        sa.UniqueConstraint("source_key", "date_key", "sequence", name="uq_batches_source_key_date_key_sequence"),
        postgresql_with={"fillfactor": 50},
    )
    op.create_table(
        "leaders",
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leaders"),
    )
    op.create_table(
        "load_samples",
        sa.Column("pool", sa.String(length=40), nullable=False),
        sa.Column("at", INSTANT, nullable=False),
        sa.Column("limit_slots", sa.Integer(), nullable=False),
        sa.Column("limit_tokens", sa.BigInteger(), nullable=False),
        sa.Column("batch_slots", sa.Integer(), nullable=False),
        sa.Column("batch_tokens", sa.BigInteger(), nullable=False),
        sa.Column("interactive_slots", sa.Integer(), nullable=False),
        sa.Column("interactive_tokens", sa.BigInteger(), nullable=False),
        sa.Column("interactive_waiting", sa.Integer(), nullable=False),
        sa.Column("interactive_arrivals", sa.Integer(), nullable=False),
        sa.Column("interactive_refused", sa.Integer(), nullable=False),
        sa.Column("revoked", sa.Integer(), nullable=False),
        sa.Column("ttft_seconds", sa.Float()),
        sa.Column("reading_age_seconds", sa.Float()),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("pool", "at", name="pk_load_samples"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "services",
        sa.Column("role", sa.String(length=20), nullable=False),
        sa.Column("id", sa.String(length=120), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("started_at", INSTANT, nullable=False),
        sa.Column("heartbeat_at", INSTANT, nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("role", "id", name="pk_services"),
    )
    op.create_table(
        "events",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("batch_id", sa.String(length=40)),
        sa.Column("pool", sa.String(length=40)),
        sa.Column("at", INSTANT, nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["batch_id"], ["batches.id"], name="fk_events_batch_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
    )
    op.create_index("ix_events_batch_id", "events", ["batch_id"])
    op.create_index("ix_events_pool", "events", ["pool"])
    op.create_table(
        "jobs",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("batch_id", sa.String(length=40), nullable=False),
        sa.Column("custom_id", sa.Text(), nullable=False),
        sa.Column("answer_key", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("not_before", INSTANT),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("requeues", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("yields", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("reaps", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("truncated", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("reused", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("lease_token", sa.String(length=32)),
        sa.Column("lease_expires_at", INSTANT),
        sa.Column("worker", sa.Text()),
        sa.Column("started_at", INSTANT),
        sa.Column("finished_at", INSTANT),
        sa.Column("error", sa.Text()),
        sa.CheckConstraint("(state = 'running') = (lease_token IS NOT NULL)", name=op.f("ck_jobs_leased")),
        sa.CheckConstraint(
            "(state IN ('succeeded', 'failed', 'expired', 'cancelled')) = (finished_at IS NOT NULL)",
            name=op.f("ck_jobs_finished"),
        ),
        sa.CheckConstraint(
            "state IN ('pending', 'running', 'succeeded', 'failed', 'expired', 'cancelled')", name=op.f("ck_jobs_state")
        ),
        sa.CheckConstraint("(lease_token IS NULL) = (lease_expires_at IS NULL)", name=op.f("ck_jobs_lease")),
        sa.CheckConstraint(
            "attempts >= 0 AND requeues >= 0 AND yields >= 0 AND reaps >= 0", name=op.f("ck_jobs_not_negative")
        ),
        sa.ForeignKeyConstraint(["batch_id"], ["batches.id"], name="fk_jobs_batch_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.UniqueConstraint("custom_id", "batch_id", name="uq_jobs_custom_id_batch_id"),
        postgresql_with={"autovacuum_vacuum_scale_factor": 0.02, "autovacuum_analyze_scale_factor": 0.02},
    )
    op.create_index(
        "ix_jobs_pending",
        "jobs",
        ["batch_id", sa.literal_column("priority DESC"), "requeues", "id"],
        postgresql_where=sa.text("state = 'pending'"),
        sqlite_where=sa.text("state = 'pending'"),
    )
    op.create_index(
        "ix_jobs_retriable",
        "jobs",
        ["batch_id", "id"],
        postgresql_where=sa.text("state IN ('failed', 'expired')"),
        sqlite_where=sa.text("state IN ('failed', 'expired')"),
    )
    op.create_index(
        "ix_jobs_running",
        "jobs",
        ["lease_token"],
        postgresql_where=sa.text("state = 'running'"),
        sqlite_where=sa.text("state = 'running'"),
    )
    op.create_table(
        "rejections",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("batch_id", sa.String(length=40), nullable=False),
        sa.Column("line", sa.BigInteger(), nullable=False),
        sa.Column("custom_id", sa.Text()),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["batch_id"], ["batches.id"], name="fk_rejections_batch_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_rejections"),
    )
    op.create_index("ix_rejections_batch_id", "rejections", ["batch_id"])
    op.create_table(
        "attempts",
        sa.Column("job_id", BIG_ID, autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("worker", sa.Text()),
        sa.Column("started_at", INSTANT, nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("ttft_seconds", sa.Float()),
        sa.Column("prompt_tokens", sa.Integer(), nullable=False),
        sa.Column("completion_tokens", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(length=10), nullable=False),
        sa.Column("symptom", sa.String(length=20)),
        sa.Column("http_status", sa.Integer()),
        sa.Column("retry_after_seconds", sa.Float()),
        sa.Column("label", sa.Text()),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_attempts_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "number", name="pk_attempts"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "results",
        sa.Column("job_id", BIG_ID, autoincrement=False, nullable=False),
        sa.Column("label", sa.Text()),
        sa.Column("raw", sa.Text()),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), nullable=False),
        sa.Column("completion_tokens", sa.Integer(), nullable=False),
        sa.Column("latency_seconds", sa.Float()),
        sa.Column("answer_key", sa.String(length=32)),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_results_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", name="pk_results"),
    )
    op.create_index(
        "ix_results_answer_key",
        "results",
        ["answer_key"],
        postgresql_where=sa.text("answer_key IS NOT NULL"),
        sqlite_where=sa.text("answer_key IS NOT NULL"),
    )
    op.create_table(
        "tickets",
        sa.Column("job_id", BIG_ID, autoincrement=False, nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_tickets_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", name="pk_tickets"),
    )
