"""The ledger of one pool at one moment, as a person or the control loop reads it."""

from dataclasses import dataclass

from scheduler.capacity import Amount


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Who holds what now, and the limit in force.

    `batch` is everything batch has in flight, `reclaiming` the part of it that was asked back or withdrawn;
    `limit_is_published` is False when batch stands at its floor for want of a fresh limit.
    """

    interactive: Amount
    batch: Amount
    reclaiming: Amount
    prefill_tokens: int
    limit: Amount
    prefill_limit_tokens: int
    limit_is_published: bool
    observed: Amount
    observed_is_fresh: bool
    paused_seconds: float
    interactive_waiting: int
    oldest_waiting_seconds: float
    epoch: str
