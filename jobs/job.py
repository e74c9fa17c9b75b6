"""One ticket to classify within a batch, as a worker holds it."""

from dataclasses import dataclass
from datetime import datetime

from jobs.outcomes import Attempt, Outcome

Claim = tuple[int, str]  # a job's id, and the token of the lease under which it is held


@dataclass(frozen=True, slots=True)
class Job:
    """A claimed job: the ticket's text, its history in numbers, and the lease under which it is held.

    `attempts` counts attempts already spent, `requeues` how often it went back to the end of the queue, `yields` how
    often of these because users came first; `truncated` asks for the shortened body.
    """

    id: int
    batch_id: str
    custom_id: str
    subject: str
    body: str
    attempts: int
    requeues: int
    yields: int
    truncated: bool
    lease_token: str
    lease_expires_at: datetime

    @property
    def claim(self) -> Claim:
        """Which claim this is: a job that was lost may come back to the same worker, under another lease."""
        return self.id, self.lease_token


@dataclass(frozen=True, slots=True)
class Finish:
    """What a worker asks the store to write for one job it holds: guarded by the lease token, at most once.

    `attempt` is None when no call was made (yielded before it started).
    """

    job: Job
    outcome: Outcome
    attempt: Attempt | None = None
