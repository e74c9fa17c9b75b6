"""The figures of a measurement, from what was answered."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from scheduler.curve import Curve, Step
from scheduler.pool_reading import quantile
from workers.measure.load import Answered
from workers.measure.texts import Texts

NOT_COUNTED = ", tokens estimated: the engine reports no usage"


@dataclass(frozen=True, slots=True)
class Held:
    """What one step showed, and the tickets by which it did."""

    step: Step
    answered: Sequence[Answered]


def curve_of(held: Sequence[Held], texts: Texts) -> Curve:
    """The steps together, in order, and the tickets of all of them."""
    answered = [one for each in held for one in each.answered]
    asks = [one.prompt_tokens + texts.spec.max_output_tokens for one in answered]
    is_counted = all(one.is_counted for one in answered)
    return Curve(
        steps=tuple(each.step for each in held),
        prompt_tokens=fmean(one.prompt_tokens for one in answered),
        output_tokens=fmean(one.attempt.usage.completion_tokens for one in answered),
        ask_tokens=fmean(asks),
        largest_tokens=round(quantile(asks, 0.95) or 0),
        tickets_from=texts.described + ("" if is_counted else NOT_COUNTED),
    )


def step_of(
    number: int, seconds: float, answered: Sequence[Answered], waited: Sequence[float], is_steady: bool
) -> Step:
    """By Little's law, tickets/s = in flight / mean seconds: right also while lanes keep step with each other."""
    took = [one.seconds for one in answered]
    per_second = number / fmean(took)
    attempts = [one.attempt for one in answered]
    firsts = [attempt.ttft_seconds for attempt in attempts if attempt.ttft_seconds is not None]
    later = [
        (attempt.seconds - attempt.ttft_seconds, attempt.usage.completion_tokens - 1)
        for attempt in attempts
        if attempt.ttft_seconds is not None and attempt.usage.completion_tokens > 1
    ]
    tokens = sum(count for _, count in later)
    return Step(
        in_flight=number,
        seconds=round(seconds, 3),
        tickets=len(took),
        tickets_per_second=per_second,
        prompt_tokens_per_second=per_second * fmean(one.prompt_tokens for one in answered),
        completion_tokens_per_second=per_second * fmean(attempt.usage.completion_tokens for attempt in attempts),
        ticket_seconds_p50=quantile(took, 0.5) or 0.0,
        ticket_seconds_p95=quantile(took, 0.95) or 0.0,
        ttft_seconds=quantile(firsts, 0.5),
        token_seconds=sum(span for span, _ in later) / tokens if tokens else None,
        probe_ttft_seconds_p50=quantile(waited, 0.5),
        probe_ttft_seconds_p95=quantile(waited, 0.95),
        probes=len(waited),
        is_steady=is_steady,
    )


def relative_error(answered: Sequence[Answered]) -> float:
    """The standard error of the mean ticket's seconds over that mean; infinite for fewer than two tickets."""
    took = [one.seconds for one in answered]
    return pstdev(took) / math.sqrt(len(took)) / fmean(took) if len(took) > 1 else math.inf


def in_words(step: Step) -> str:
    """One line."""
    waited = step.probe_ttft_seconds_p95
    chat = "" if waited is None else f", a chat probe waits {waited:.2f} s (p95 of {step.probes})"
    steady = "" if step.is_steady else ", not steady"
    return (
        f"{step.in_flight} in flight: {step.tickets_per_second:.2f} tickets/s, "
        f"{step.ticket_seconds_p50:.2f} s a ticket{chat}{steady}"
    )
