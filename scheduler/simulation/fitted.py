"""From a measured curve to the engine model, and from the model to the curve that it would show."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, count
from statistics import fmean

from scheduler.curve import Curve, Step
from scheduler.pool_reading import quantile
from scheduler.simulation.engine.core import EngineCore, Request
from scheduler.simulation.engine.profile import EngineProfile
from scheduler.simulation.engine.request import Finished, FirstToken

DEFAULT_LENGTHS = (500, 40)  # tokens of a ticket's prompt and answer where nothing is known of the tickets
QUEUEING_SHARE = 0.1  # of those in flight, over which the engine has no slot for all of them
ROUNDS = 8  # tickets of each lane that a played step lasts
PROBE_TOKENS = 30
SPREAD = 0.3  # of the lengths, around the mean
GOLDEN = 0.618_034
Row = tuple[float, float, float, float]


def fitted(curve: Curve, slots: int) -> EngineProfile:
    """The profile by which the engine model does what was measured; `slots` is what the pool is configured to carry.

    A ticket of o tokens out beside k - 1 others takes o * base + o * k * decoding + k * (one prompt's prefill): each
    measured step is one equation, the first token of a ticket alone (base + its prefill) another, and the least squares
    of their relative errors with no negative time solve them. The prefill time is that of a ticket's whole prompt over
    its tokens, so that a prefix cache of the engine is in it.
    """
    engine_slots = _slots(curve, slots)
    default = replace(EngineProfile(), slots=engine_slots)
    base, decoding, prefill = _no_negative(_rows(curve, engine_slots))
    return replace(
        default,
        step_base_seconds=base,
        decode_sequence_seconds=decoding,
        prefill_token_seconds=prefill / max(1.0, curve.prompt_tokens),
        step_token_budget=max(default.step_token_budget, 2 * default.slots),
    )


def played(profile: EngineProfile, in_flights: Sequence[int], prompt_tokens: int, output_tokens: int) -> Curve:
    """The curve of the model in virtual time, for tickets that are so long on average."""
    steps = tuple(_played(profile, in_flight, prompt_tokens, output_tokens) for in_flight in in_flights)
    return Curve(
        steps,
        prompt_tokens,
        output_tokens,
        prompt_tokens + output_tokens,
        prompt_tokens + output_tokens,
        f"tickets of {prompt_tokens} tokens in and {output_tokens} out",
    )


def _played(profile: EngineProfile, in_flight: int, prompt_tokens: int, output_tokens: int) -> Step:
    """As it is measured: the tickets alone, then once more with the probe beside them."""
    ticket = (prompt_tokens, output_tokens)
    counted, _ = _lanes(profile, in_flight, ticket, has_probe=False)
    _, probes = _lanes(profile, in_flight, ticket, has_probe=True)
    took = [event.at - event.arrived_at for event in counted]
    per_second = in_flight / fmean(took)
    rest = fmean(event.at - event.first_token_at for event in counted)
    return Step(
        in_flight=in_flight,
        seconds=sum(took) / in_flight,
        tickets=len(counted),
        tickets_per_second=per_second,
        prompt_tokens_per_second=per_second * prompt_tokens,
        completion_tokens_per_second=per_second * output_tokens,
        ticket_seconds_p50=quantile(took, 0.5) or 0.0,
        ticket_seconds_p95=quantile(took, 0.95) or 0.0,
        ttft_seconds=fmean(event.first_token_at - event.arrived_at for event in counted),
        token_seconds=rest / (output_tokens - 1) if output_tokens > 1 else None,
        probe_ttft_seconds_p50=quantile(probes, 0.5),
        probe_ttft_seconds_p95=quantile(probes, 0.95),
        probes=len(probes),
    )


def _lanes(
    profile: EngineProfile, in_flight: int, ticket: tuple[int, int], *, has_probe: bool
) -> tuple[list[Finished], list[float]]:
    """So many lanes, each with the next ticket when one has ended: the tickets but for each lane's first, and the
    probe's seconds to the first token.
    """
    core, names = EngineCore(profile), count()

    def next_ticket() -> Request:
        number = next(names)
        length = 1 + SPREAD * (2 * (number * GOLDEN % 1) - 1)  # no two in a row alike, or the lanes would keep step
        return Request(f"{number}", max(1, round(ticket[0] * length)), max(1, round(ticket[1] * length)))

    for _ in range(in_flight):
        core.submit(next_ticket(), 0.0)
    if has_probe:
        core.submit(Request(f"{next(names)}", PROBE_TOKENS, 1, klass="chat"), 0.0)
    ended: list[Finished] = []
    probes: list[float] = []
    while len(ended) < ROUNDS * in_flight:
        for event in core.advance(core.next_event_time()):
            is_probe = event.request.klass == "chat"
            if is_probe and isinstance(event, FirstToken):
                probes.append(event.at - event.arrived_at)
            elif is_probe:
                core.submit(Request(f"{next(names)}", PROBE_TOKENS, 1, klass="chat"), event.at)
            elif isinstance(event, Finished):
                core.submit(next_ticket(), event.at)
                ended.append(event)
    return ended[in_flight:], probes


def _rows(curve: Curve, slots: int) -> list[Row]:
    """How much of base, decoding and prefill is in what a ticket took, and how long that was: each row over it."""
    rows = []
    for step in curve.steps:
        together, out = min(step.in_flight, slots), curve.output_tokens
        rows.append((out, out * together, float(together), together / step.tickets_per_second))
    alone = curve.steps[0]
    if alone.in_flight == 1 and alone.ttft_seconds:
        rows.append((1.0, 0.0, 1.0, alone.ttft_seconds))
    return [(base / took, decoding / took, prefill / took, 1.0) for base, decoding, prefill, took in rows]


def _slots(curve: Curve, configured: int) -> int:
    """What the engine serves at a time: where more were in flight, the tickets waited for their first token."""
    last, lightest = curve.steps[-1], curve.steps[0]
    if last.ttft_seconds is None or lightest.ttft_seconds is None:
        return max(configured, last.in_flight)
    queueing = last.tickets_per_second * max(0.0, last.ttft_seconds - lightest.ttft_seconds)
    if queueing > QUEUEING_SHARE * last.in_flight and last.in_flight > configured:
        return max(1, math.ceil(last.in_flight - queueing))
    return max(configured, last.in_flight)


def _no_negative(rows: Sequence[Row]) -> tuple[float, float, float]:
    """The least squares over every choice of unknowns: the best one without a negative value."""
    best, least = (0.0, 0.0, 0.0), float("inf")
    for size in (3, 2, 1):
        for chosen in combinations(range(3), size):
            found = _solved(rows, chosen)
            if found is None or min(found) < 0:
                continue
            error = sum((sum(row[i] * found[i] for i in range(3)) - row[3]) ** 2 for row in rows)
            if error < least:
                best, least = found, error
    return best


def _solved(rows: Sequence[Row], chosen: Sequence[int]) -> tuple[float, float, float] | None:
    """The normal equations of the chosen unknowns by elimination; None where they do not tell them apart."""
    matrix = [[sum(row[i] * row[j] for row in rows) for j in (*chosen, 3)] for i in chosen]
    size = len(chosen)
    for at in range(size):
        pivot = max(range(at, size), key=lambda line: abs(matrix[line][at]))
        matrix[at], matrix[pivot] = matrix[pivot], matrix[at]
        if abs(matrix[at][at]) < 1e-12:
            return None
        for line in range(size):
            if line != at:
                factor = matrix[line][at] / matrix[at][at]
                matrix[line] = [x - factor * y for x, y in zip(matrix[line], matrix[at], strict=True)]
    found = [0.0, 0.0, 0.0]
    for place, unknown in enumerate(chosen):
        found[unknown] = matrix[place][size] / matrix[place][place]
    return found[0], found[1], found[2]
