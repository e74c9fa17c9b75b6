"""The states of a batch and of a job, and which of them are final."""

from enum import StrEnum


class JobState(StrEnum):
    """Where one ticket stands within its batch."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """True when nothing but `retry` or a reopened batch moves the job any more."""
        return self not in (JobState.PENDING, JobState.RUNNING)


class BatchState(StrEnum):
    """Where one submission stands; being *blocked* is a condition beside it, not a state."""

    LOADING = "loading"
    RUNNING = "running"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """True when the batch has ended and a waiting submit may return."""
        return self in (BatchState.COMPLETED, BatchState.EXPIRED, BatchState.CANCELLED)
