"""Load samples for tests: one of all columns, and those that the scheduler would have written of a simulated night."""

from datetime import UTC

from jobs.store.samples import LoadSample
from scheduler.simulation.night import Row
from tests.support.store import START

SAMPLE = LoadSample(
    pool="gpu",
    at=START,
    limit_slots=12,
    limit_tokens=36_000,
    batch_slots=9,
    batch_tokens=27_000,
    interactive_slots=3,
    interactive_tokens=9_000,
    interactive_waiting=1,
    interactive_arrivals=14,
    interactive_refused=0,
    revoked=2,
    ttft_seconds=0.31,
    reading_age_seconds=0.4,
    reason="headroom",
)


def sample_of(row: Row) -> LoadSample:
    """What is stored of this stretch of a simulated night."""
    return LoadSample(
        pool="gpu",
        at=row.at.astimezone(UTC),
        limit_slots=row.limit.slots,
        limit_tokens=row.limit.tokens,
        batch_slots=row.held.slots,
        batch_tokens=row.held.tokens,
        interactive_slots=row.chat.slots,
        interactive_tokens=row.chat.tokens,
        interactive_waiting=row.waiting,
        interactive_arrivals=row.arrivals,
        interactive_refused=row.refused,
        revoked=row.withdrawn,
        ttft_seconds=row.ttft_seconds,
        reading_age_seconds=0.4,
        reason=row.rule,
    )
