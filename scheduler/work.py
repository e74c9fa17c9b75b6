"""Work to be done, from when on, and when it is done at a rate that is known: pure."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

HORIZON_SECONDS = 14 * 24 * 3600.0
NEAR_SECONDS = 48 * 3600.0  # within this every change of hours is seen to some minutes
FIRST_STEP_SECONDS = 10.0
NEAR_STEP_SECONDS = 600.0
FAR_STEP_SECONDS = 7200.0
STEP_SHARE = 0.03  # of the time looked ahead so far


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done, in tokens; `tokens_ahead` are those of batches that are served before this one."""

    tokens_left: float
    tokens_ahead: float = 0.0
    not_before: datetime | None = None

    def legs(self, now: datetime) -> list[tuple[datetime, float]]:
        """From when on how much must be done; the last of them to be done is the end."""
        if self.not_before is None or self.not_before <= now:
            return [(now, self.tokens_ahead + self.tokens_left)]
        own = (self.not_before, self.tokens_left)
        return [(now, self.tokens_ahead + self.tokens_left), own] if self.tokens_ahead > 0 else [own]

    def needed_rate(self, now: datetime, deadline_at: datetime) -> float | None:
        """Tokens a second that would do until the deadline; None where no rate would."""
        if self.tokens_left <= 0:
            return 0.0
        needed = []
        for begin, tokens in self.legs(now):
            seconds = (deadline_at - begin).total_seconds()
            if seconds <= 0:
                return None
            needed.append(tokens / seconds)
        return max(needed)

    def finish(self, now: datetime, rate: Callable[[datetime], float]) -> datetime | None:
        """When it is done at a rate that is known for every instant; None: not within HORIZON_SECONDS."""
        return latest(_reach(begin, tokens, rate) for begin, tokens in self.legs(now))


def steps() -> Iterator[tuple[float, float]]:
    """Offset and length of each step into the time to come, in seconds: short ones first."""
    offset = 0.0
    while offset < HORIZON_SECONDS:
        longest = NEAR_STEP_SECONDS if offset < NEAR_SECONDS else FAR_STEP_SECONDS
        step = min(max(FIRST_STEP_SECONDS, offset * STEP_SHARE), longest)
        yield offset, step
        offset += step


def latest(times: Iterable[datetime | None]) -> datetime | None:
    """The last of them; None (never) where there is one."""
    found = list(times)
    return None if None in found else max(at for at in found if at is not None)


def _reach(begin: datetime, tokens: float, rate: Callable[[datetime], float]) -> datetime | None:
    done = 0.0
    for offset, step in steps():
        gained = rate(begin + timedelta(seconds=offset + step / 2)) * step
        if done + gained >= tokens:
            return begin + timedelta(seconds=offset + step * (tokens - done) / gained)
        done += gained
    return None
