"""What has come to pass between two snapshots of a ledger, whose counters begin anew with it."""

from collections import deque
from dataclasses import dataclass

from scheduler.permit import Kind
from scheduler.snapshot import FirstToken, Snapshot

PREFILLED_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class News:
    """Since the snapshot before: chat requests admitted, chat's times to first token, and batch's first tokens.

    Only the last first tokens are listed; `batch_first_tokens` is how many there were of batch, listed or not, and
    `prompt_tokens` what all of them came to, chat's too.
    """

    arrivals: int = 0
    chat_ttfts_seconds: tuple[float, ...] = ()
    batch: tuple[FirstToken, ...] = ()
    batch_first_tokens: int = 0
    prompt_tokens: int = 0


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
            prompt_tokens=round(count * sum(each.prompt_tokens for each in listed) / len(listed)) if listed else 0,
        )


class Prefilled:
    """What all engines of a pool together were seen to prefill lately. Pure; one for each reader of its news."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self._tokens = 0

    def take(self, prompt_tokens: int, now_seconds: float) -> None:
        """Prompts that came to their first token since the call before."""
        self._seen.append((now_seconds, prompt_tokens))
        self._tokens += prompt_tokens
        while now_seconds - self._seen[0][0] > PREFILLED_SECONDS:
            self._tokens -= self._seen.popleft()[1]

    @property
    def tokens_per_second(self) -> float:
        """The mean of the last PREFILLED_SECONDS; less until so long was looked."""
        return self._tokens / PREFILLED_SECONDS


def _gained(now: int, before: int, is_same_ledger: bool) -> int:
    """A counter that went back began at zero."""
    return now - before if is_same_ledger and now >= before else now
