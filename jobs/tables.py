"""The tables, and what they promise of themselves.

Texts live in `tickets` alone, so that they can be purged and so that the rows of `jobs`, which change all night, stay
narrow. `batches` carries the counters of its jobs, kept in the transaction that moves a job: nothing ever counts rows.
`text_bytes` is the length of a ticket's subject and body in UTF-8, `text_bytes_left` its sum over the jobs of a batch
that are pending or running: the work that is left, before anybody has counted a token.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    Date,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    literal_column,
    text,
)
from sqlalchemy.types import TypeDecorator

from jobs.states import BatchState, JobState

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class Instant(TypeDecorator[datetime]):
    """An aware instant, stored in UTC and given back in UTC; a naive one is refused."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """UTC on its way in."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value!r} has no time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """UTC on its way out; SQLite keeps no zone."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def said(state: JobState | BatchState) -> ColumnElement[str]:
    """The state written into the statement: a partial index serves no query whose state is a parameter."""
    return literal_column(f"'{state.value}'", String)


def _one_of(column: str, states: type[JobState] | type[BatchState]) -> str:
    return f"{column} IN ({', '.join(repr(state.value) for state in states)})"


def _final(states: type[JobState] | type[BatchState]) -> str:
    return f"state IN ({', '.join(repr(state.value) for state in states if state.is_final)})"


def _count(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=text("0"))


def _small(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default=text("0"))


def _flag(name: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False, server_default=false())


def _job_id() -> Column[int]:
    key = ForeignKey("jobs.id", ondelete="CASCADE")
    return Column("job_id", BigId, key, primary_key=True, autoincrement=False)


BigId = BigInteger().with_variant(Integer, "sqlite")  # only INTEGER names SQLite's rowid

TEXT_LEFT = "text_bytes_left"
STATE_COUNTERS = tuple(state.value for state in JobState)
OTHER_COUNTERS = (
    "reused",
    "rejected",
    "yields",
    "withdrawn",
    "prompt_tokens",
    "completion_tokens",
    "wasted_tokens",
)

batches = Table(
    "batches",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("date", Date),  # null: every row of the source
    Column("zone", String(64), nullable=False),
    Column("source_key", String(128), nullable=False),
    Column("date_key", String(10), nullable=False),  # the date, or "all": null would be distinct from null
    Column("sequence", Integer, nullable=False),
    Column("source", Text, nullable=False),
    Column("spec", JSON, nullable=False),  # JSON, not JSONB: the order of the labels is part of the prompt
    Column("spec_hash", String(64), nullable=False),
    Column("model", Text, nullable=False),
    Column("pools", JSON, nullable=False),
    Column("state", String(10), nullable=False),
    Column("blocked", Text),
    Column("probe_at", Instant),
    Column("probe_token", String(32)),  # the lease of the one job that probes a blocked batch
    _small("probes"),
    Column("created_at", Instant, nullable=False),
    Column("not_before", Instant),
    Column("deadline_at", Instant),
    Column("started_at", Instant),
    Column("finished_at", Instant),
    Column("first_job_id", BigInteger),  # the range of its jobs' ids: a scan of one batch reads one part of the table
    Column("last_job_id", BigInteger),
    Column("loader_token", String(32)),  # held while jobs are put in: the batch does not close meanwhile
    Column("loader_expires_at", Instant),
    Column("loader", JSON),
    Column("purged_at", Instant),  # since then it holds no text; null again when somebody may put some in
    _count("total"),
    *(_count(name) for name in STATE_COUNTERS),
    *(_count(name) for name in OTHER_COUNTERS),
    Column(
        TEXT_LEFT,
        BigInteger,
        # with the column and not the table: SQLite adds no check to a table that is there
        CheckConstraint(f"{TEXT_LEFT} >= 0", name="text_bytes_left"),
        nullable=False,
        server_default=text("0"),
    ),
    UniqueConstraint("source_key", "date_key", "sequence"),
    CheckConstraint(_one_of("state", BatchState), name="state"),
    CheckConstraint(f"({_final(BatchState)}) = (finished_at IS NOT NULL)", name="finished"),
    CheckConstraint(f"{' + '.join(STATE_COUNTERS)} = total", name="counters_add_up"),
    CheckConstraint(" AND ".join(f"{name} >= 0" for name in STATE_COUNTERS + OTHER_COUNTERS), name="not_negative"),
    CheckConstraint("blocked IS NULL OR probe_at IS NOT NULL", name="blocked_is_probed"),
    CheckConstraint("(loader_token IS NULL) = (loader_expires_at IS NULL)", name="loader"),
    postgresql_with={"fillfactor": 50},  # one hot row each: leave room beside it for its next version
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", BigId, primary_key=True),
    Column("batch_id", ForeignKey(batches.c.id, ondelete="CASCADE"), nullable=False),
    Column("custom_id", Text, nullable=False),
    Column("answer_key", String(32), nullable=False),  # hash of text, spec and model: equal keys have equal answers
    Column("state", String(10), nullable=False),
    Column("priority", Integer, nullable=False),
    _small("text_bytes"),
    Column("not_before", Instant),
    _small("attempts"),
    _small("requeues"),
    _small("yields"),
    Column("reaps", SmallInteger, nullable=False, server_default=text("0")),
    _flag("truncated"),
    _flag("reused"),
    Column("lease_token", String(32)),
    Column("lease_expires_at", Instant),
    Column("worker", Text),
    Column("started_at", Instant),
    Column("finished_at", Instant),
    Column("error", Text),
    # custom_id first: no index then begins with batch_id, which SQLite would prefer to the range of ids
    UniqueConstraint("custom_id", "batch_id"),
    CheckConstraint(_one_of("state", JobState), name="state"),
    CheckConstraint(f"({_final(JobState)}) = (finished_at IS NOT NULL)", name="finished"),
    CheckConstraint("(state = 'running') = (lease_token IS NOT NULL)", name="leased"),
    CheckConstraint("(lease_token IS NULL) = (lease_expires_at IS NULL)", name="lease"),
    CheckConstraint("attempts >= 0 AND requeues >= 0 AND yields >= 0 AND reaps >= 0", name="not_negative"),
    # a queue's table: vacuum long before a fifth of a million rows is dead
    postgresql_with={"autovacuum_vacuum_scale_factor": 0.02, "autovacuum_analyze_scale_factor": 0.02},
)

_PENDING = text("state = 'pending'")
_RUNNING = text("state = 'running'")
_RETRIABLE = text("state IN ('failed', 'expired')")

Index(
    "ix_jobs_pending",
    jobs.c.batch_id,
    jobs.c.priority.desc(),
    jobs.c.requeues,
    jobs.c.id,
    postgresql_where=_PENDING,
    sqlite_where=_PENDING,
)
# by token, not by lease_expires_at: a renewal then changes no index, and the few running jobs are quickly read through
Index("ix_jobs_running", jobs.c.lease_token, postgresql_where=_RUNNING, sqlite_where=_RUNNING)
Index("ix_jobs_retriable", jobs.c.batch_id, jobs.c.id, postgresql_where=_RETRIABLE, sqlite_where=_RETRIABLE)

tickets = Table(
    "tickets",
    metadata,
    _job_id(),
    Column("subject", Text, nullable=False),
    Column("body", Text, nullable=False),
)

attempts = Table(
    "attempts",
    metadata,
    _job_id(),
    Column("number", Integer, primary_key=True, autoincrement=False),  # a claim makes at most one: requeues + 1
    Column("pool", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("worker", Text),
    Column("started_at", Instant, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("ttft_seconds", Float),
    Column("prompt_tokens", Integer, nullable=False),
    Column("completion_tokens", Integer, nullable=False),
    Column("outcome", String(10), nullable=False),
    Column("symptom", String(20)),
    Column("http_status", Integer),
    Column("retry_after_seconds", Float),
    Column("label", Text),
    Column("detail", Text, nullable=False),
    sqlite_with_rowid=False,
)

results = Table(
    "results",
    metadata,
    _job_id(),
    Column("label", Text),
    Column("raw", Text),  # the model's own words where they were no label
    Column("model", Text, nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("completion_tokens", Integer, nullable=False),
    Column("latency_seconds", Float),
    Column("answer_key", String(32)),  # null where the answer was itself reused, or is none
)
_ANSWERED = text("answer_key IS NOT NULL")
Index("ix_results_answer_key", results.c.answer_key, postgresql_where=_ANSWERED, sqlite_where=_ANSWERED)

rejections = Table(
    "rejections",
    metadata,
    Column("id", BigId, primary_key=True),
    Column("batch_id", ForeignKey(batches.c.id, ondelete="CASCADE"), nullable=False, index=True),
    Column("line", BigInteger, nullable=False),
    Column("custom_id", Text),
    Column("reason", Text, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("id", BigId, primary_key=True),
    Column("batch_id", ForeignKey(batches.c.id, ondelete="CASCADE"), index=True),
    Column("pool", String(40), index=True),
    Column("at", Instant, nullable=False),
    Column("kind", String(40), nullable=False),
    Column("detail", JSON, nullable=False),
)

load_samples = Table(
    "load_samples",
    metadata,
    Column("pool", String(40), primary_key=True),
    Column("at", Instant, primary_key=True),
    Column("limit_slots", Integer, nullable=False),
    Column("limit_tokens", BigInteger, nullable=False),
    Column("batch_slots", Integer, nullable=False),
    Column("batch_tokens", BigInteger, nullable=False),
    Column("interactive_slots", Integer, nullable=False),
    Column("interactive_tokens", BigInteger, nullable=False),
    Column("interactive_waiting", Integer, nullable=False),
    Column("interactive_arrivals", Integer, nullable=False),
    Column("interactive_refused", Integer, nullable=False),
    Column("revoked", Integer, nullable=False),
    Column("ttft_seconds", Float),
    Column("reading_age_seconds", Float),
    Column("reason", Text, nullable=False),
    sqlite_with_rowid=False,
)

forecasts = Table(
    "forecasts",
    metadata,
    Column("batch_id", ForeignKey(batches.c.id, ondelete="CASCADE"), primary_key=True),
    Column("at", Instant, primary_key=True),
    Column("jobs_left", BigInteger, nullable=False),
    Column("tokens_left", BigInteger, nullable=False),
    Column("achieved_rate", Float),  # tokens a second, like the other rates
    Column("needed_rate", Float),
    Column("floor_rate", Float),
    Column("full_rate", Float),
    Column("chat_slots", Float),
    Column("p50_at", Instant),
    Column("p90_at", Instant),
    Column("floor_at", Instant),
    Column("pace", String(20)),
    sqlite_with_rowid=False,
)

curves = Table(
    "curves",
    metadata,
    Column("id", BigId, primary_key=True),
    Column("pool", String(40), nullable=False, index=True),
    Column("model", Text, nullable=False),
    Column("measured_at", Instant, nullable=False),
    Column("detail", JSON, nullable=False),
)

leaders = Table(
    "leaders",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("holder", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("expires_at", Instant, nullable=False),
)

services = Table(
    "services",
    metadata,
    Column("role", String(20), primary_key=True),
    Column("id", String(120), primary_key=True),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started_at", Instant, nullable=False),
    Column("heartbeat_at", Instant, nullable=False),
    Column("detail", JSON, nullable=False),
)

Values = dict[str, Any]

IS_PENDING = jobs.c.state == said(JobState.PENDING)
