"""What has come to pass between two snapshots of a ledger, whose counters begin anew with it."""

from dataclasses import dataclass

from scheduler.permit import Kind
from scheduler.snapshot import FirstToken, Snapshot


@dataclass(frozen=True, slots=True)
class News:
    """Since the snapshot before: chat requests admitted, chat's times to first token, and batch's first tokens.

    Only the last first tokens are listed; `batch_first_tokens` is how many there were of batch, listed or not.
    """

    arrivals: int = 0
    chat_ttfts_seconds: tuple[float, ...] = ()
    batch: tuple[FirstToken, ...] = ()
    batch_first_tokens: int = 0


class Differences:
    """Takes one snapshot after the other. What was before the first is no news."""

    def __init__(self) -> None:
        self._before: Snapshot | None = None

    def take(self, snapshot: Snapshot) -> News:
        """The oldest news first."""
        before, self._before = self._before, snapshot
        if before is None:
            return News()
        arrivals = _gained(snapshot.arrivals, before.arrivals, snapshot.epoch == before.epoch)
        count = _gained(snapshot.first_tokens, before.first_tokens, snapshot.epoch == before.epoch)
        listed = snapshot.recent[:count][::-1]
        batch = tuple(each for each in listed if each.kind is Kind.BATCH)
        return News(
            arrivals=arrivals,
            chat_ttfts_seconds=tuple(each.seconds for each in listed if each.kind is Kind.INTERACTIVE),
            batch=batch,
            batch_first_tokens=round(count * len(batch) / len(listed)) if listed else 0,
        )


def _gained(now: int, before: int, is_same_ledger: bool) -> int:
    """A counter that went back began at zero."""
    return now - before if is_same_ledger and now >= before else now
