"""Dispatch: keep just enough tasks queued for the batch whose deadline is nearest, and for those in other pools."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from jobs.store.batches import BatchWork
from jobs.store.services import Service
from scheduler.turns import at_turn
from tickets_batch.errors import UserError


class QueueUnavailable(UserError):
    """The broker does not answer: no task is queued until it does."""


@dataclass(frozen=True, slots=True)
class Task:
    """ "Work on this batch: up to `at_once` jobs at a time, for at most `seconds`"."""

    batch_id: str
    at_once: int
    seconds: float

    def arguments(self) -> dict[str, Any]:
        """As the message carries it."""
        return {"batch_id": self.batch_id, "at_once": self.at_once, "seconds": self.seconds}


class Queue(Protocol):
    """Where tasks are published; both raise QueueUnavailable."""

    def __len__(self) -> int: ...

    def publish(self, task: Task) -> None:
        """Queue one task."""


def missing(workers: Sequence[Service], queued: int) -> int:
    """How many tasks to queue: one for every idle worker process, and one ahead for those that end next.

    A worker takes one message in advance, so one spare keeps the changeover short; the queue stays a few messages long.
    """
    if not workers:
        return max(0, 1 - queued)
    idle = sum(not worker.detail.get("batch") for worker in workers)
    return max(0, max(1, idle) - queued)


def dispatch(
    runnable: Sequence[BatchWork], workers: Sequence[Service], queue: Queue, at_once: int, seconds: float
) -> int:
    """Queue what is missing for the runnable batches whose turn it is; returns how many. Raises QueueUnavailable.

    Each goes to the batch with the fewest workers, of these to the first. Where there are fewer workers than batches
    the last of them wait: a worker that went from one to the other would leave the pool of the nearest deadline idle.
    """
    if not runnable:
        return 0
    turn = at_turn(runnable)[: max(1, len(workers))]
    at_work = Counter(worker.detail.get("batch") for worker in workers)
    count = missing(workers, len(queue))
    for _ in range(count):
        next_ = min(turn, key=lambda work: at_work[work.id])
        at_work[next_.id] += 1
        queue.publish(Task(next_.id, at_once, seconds))
    return count
