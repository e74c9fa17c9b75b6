"""How many tokens a text will be, before the engine has said so; pure, and needs no tokenizer.

The first guess is one token for every four bytes of UTF-8, the usual ratio of English under byte-pair encodings;
scripts that take more tokens a letter also take more bytes. It corrects itself from the engine's own counts.
"""

from bisect import insort
from collections import deque
from dataclasses import dataclass

BYTES_PER_TOKEN = 4.0
FIRST_RATIO = 1.25  # cautious until the engine has reported
MOST_BYTES_PER_TOKEN = 32
ADDED_TOKENS = 1000  # by a chat template; beyond them a token is at least one byte
WINDOW = 256  # reports that count
ENOUGH = 8  # reports before they are believed
UPPER_QUANTILE = 0.9


@dataclass(frozen=True, slots=True)
class EstimateReport:
    """How well the estimates fared: `ratio` in use, mean relative error, and the share that was too low."""

    count: int
    ratio: float
    mean_error: float
    too_low_share: float


class TokenEstimator:
    """Estimates tokens for one model: bytes / 4, times an upper quantile of what the engine counted against that."""

    def __init__(self) -> None:
        self.ratio = FIRST_RATIO
        self._recent: deque[float] = deque()
        self._ordered: list[float] = []
        self._count = 0
        self._error_sum = 0.0
        self._too_low = 0

    def estimate(self, text: str) -> int:
        """Tokens that `text` will be, more often too many than too few; at least 1."""
        return self.of_bytes(len(text.encode("utf-8", "surrogatepass")))

    def of_bytes(self, size: int) -> int:
        """The same from a size in bytes of UTF-8."""
        return max(1, round(size / BYTES_PER_TOKEN * self.ratio))

    def within(self, size: int, most: int) -> int:
        """The same where no more than `most` tokens fit: until the engine has reported, caution alone ends no ticket.

        Then more than `most` is said only of what would not fit by the usual ratio either.
        """
        tokens = self.of_bytes(size)
        if tokens <= most or len(self._ordered) >= ENOUGH:
            return tokens
        return max(most, round(size / BYTES_PER_TOKEN))

    def learn(self, size: int, estimated: int, actual: int) -> None:
        """Take in what the engine counted (`actual`, over 0) for a prompt of `size` bytes estimated at `estimated`.

        What no tokenizer can have counted is left out: tickets would be refused as too large, or booked as nothing.
        """
        if not size / MOST_BYTES_PER_TOKEN <= actual <= size + ADDED_TOKENS:
            return
        self._count += 1
        self._error_sum += abs(estimated - actual) / actual
        self._too_low += estimated < actual
        seen = actual * BYTES_PER_TOKEN / max(1, size)
        if len(self._recent) == WINDOW:
            self._ordered.remove(self._recent.popleft())
        self._recent.append(seen)
        insort(self._ordered, seen)
        if len(self._ordered) >= ENOUGH:
            self.ratio = self._ordered[int(UPPER_QUANTILE * (len(self._ordered) - 1))]

    def report(self) -> EstimateReport:
        """How well the estimates fared so far."""
        if not self._count:
            return EstimateReport(0, self.ratio, 0.0, 0.0)
        return EstimateReport(self._count, self.ratio, self._error_sum / self._count, self._too_low / self._count)
