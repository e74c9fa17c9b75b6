"""The ledger of one pool at one moment, as a person or the control loop reads it."""

from dataclasses import dataclass

from scheduler.capacity import Amount
from scheduler.permit import Kind, Outlook


@dataclass(frozen=True, slots=True)
class FirstToken:
    """How long one request waited for its first token."""

    kind: Kind
    seconds: float
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Who holds what now, and the limit in force.

    `batch` is everything batch has in flight, for `batch_expected_seconds` each on average, `reclaiming` the part of it
    that was asked back or withdrawn;
    `limit_is_published` is False when batch stands at its floor for want of a fresh limit. Since the ledger began:
    `arrivals` are the interactive requests admitted, `refused` those refused, `revoked` the batch permits asked back,
    `first_tokens` those of both classes, and `recent` the last of them, newest first. `beat_age_seconds` is the age of
    the last sign of life of a gateway or guard, None where there was none. `note` is what the scheduler says of the
    limit (JSON), empty where it says nothing.
    """

    interactive: Amount
    batch: Amount
    batch_expected_seconds: float
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
    outlook: Outlook
    arrivals: int
    refused: int
    revoked: int
    first_tokens: int
    recent: tuple[FirstToken, ...]
    beat_age_seconds: float | None
    note: str
