"""What one engine was measured to do with so many tickets in flight: pure, and the way in which it is stored.

Between the steps that were measured a figure is interpolated on a straight line; under the first and beyond the last
step the tickets that an engine does are those of that step, scaled down to the slots or level.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from pydantic import TypeAdapter, ValidationError

KNEE_SHARE = 0.9  # of the best tickets/s that was measured


class UnreadableCurve(ValueError):
    """What is stored is no curve of this version."""


@dataclass(frozen=True, slots=True)
class Step:
    """One number of tickets in flight, held for `seconds` in which `tickets` were answered.

    `ttft_seconds` is the median of the tickets' own first tokens, `token_seconds` what a token after the first takes on
    average, both None where the engine showed no first token. The chat probe is one small request at a time beside the
    load, `probes` of them. A step that is not steady ended because its time was up.
    """

    in_flight: int
    seconds: float
    tickets: int
    tickets_per_second: float
    prompt_tokens_per_second: float
    completion_tokens_per_second: float
    ticket_seconds_p50: float
    ticket_seconds_p95: float
    ttft_seconds: float | None = None
    token_seconds: float | None = None
    probe_ttft_seconds_p50: float | None = None
    probe_ttft_seconds_p95: float | None = None
    probes: int = 0
    is_steady: bool = True


@dataclass(frozen=True, slots=True)
class Curve:
    """The steps by the number in flight, and what the tickets were: their mean tokens as the engine counted them.

    `ask_tokens` is what a ticket asks the ledger for on average, its prompt and the output cap, `largest_tokens` what
    19 of 20 ask for at most; `tickets_from` says in words which tickets they were. Raises ValueError when there is no
    step, or when they are not in order.
    """

    steps: tuple[Step, ...]
    prompt_tokens: float
    output_tokens: float
    ask_tokens: float
    largest_tokens: int
    tickets_from: str

    def __post_init__(self) -> None:
        numbers = [step.in_flight for step in self.steps]
        if not numbers or numbers[0] < 1 or numbers != sorted(set(numbers)):
            raise ValueError("a curve needs at least one step, each with more in flight than the one before")

    @property
    def best(self) -> Step:
        """The step with the most tickets/s."""
        return max(self.steps, key=lambda step: step.tickets_per_second)

    @property
    def knee(self) -> Step:
        """The smallest number in flight that does nine tenths of the best tickets/s: more only makes all slower."""
        enough = KNEE_SHARE * self.best.tickets_per_second
        return next(step for step in self.steps if step.tickets_per_second >= enough)

    def most_within(self, ttft_target_seconds: float) -> Step | None:
        """The most in flight at which 19 of 20 probes had their first token within the target.

        None where none had, or where nothing was probed. That a smaller step had some late one is chance: less load
        makes no first token later.
        """
        within = [
            step
            for step in self.steps
            if step.probe_ttft_seconds_p95 is not None and step.probe_ttft_seconds_p95 <= ttft_target_seconds
        ]
        return within[-1] if within else None

    @property
    def is_probed(self) -> bool:
        """Whether any step knows what a chat request waits beside the tickets."""
        return any(step.probe_ttft_seconds_p95 is not None for step in self.steps)

    def tickets_per_second(self, in_flight: float) -> float:
        """With so many in flight; under the first step in proportion, beyond the last one as there."""
        return self._at(in_flight, lambda step: step.tickets_per_second) * min(1.0, in_flight / self.steps[0].in_flight)

    def ticket_seconds(self, in_flight: float) -> float:
        """How long a ticket takes on average with so many in flight: what is in flight over what ends in a second."""
        in_flight = max(in_flight, 1.0)
        return in_flight / self.tickets_per_second(in_flight)

    def tokens_per_second(self, in_flight: float) -> float:
        """Prompt and completion tokens of the tickets that end in a second, with so many in flight."""
        return self.tickets_per_second(in_flight) * (self.prompt_tokens + self.output_tokens)

    def as_json(self) -> dict[str, Any]:
        """What is stored and printed: plain numbers and texts."""
        return asdict(self)

    @classmethod
    def from_json(cls, detail: Mapping[str, Any]) -> Self:
        """The curve that `as_json` gave. Raises UnreadableCurve."""
        try:
            return TypeAdapter(cls).validate_python(dict(detail))
        except ValidationError as error:
            raise UnreadableCurve("the stored curve cannot be read: measure the pool again") from error

    def _at(self, in_flight: float, of: Callable[[Step], float]) -> float:
        steps: Sequence[Step] = self.steps
        place = bisect_left(steps, in_flight, key=lambda step: step.in_flight)
        if place == 0 or place == len(steps):
            return of(steps[min(place, len(steps) - 1)])
        below, above = steps[place - 1], steps[place]
        share = (in_flight - below.in_flight) / (above.in_flight - below.in_flight)
        return of(below) + share * (of(above) - of(below))
