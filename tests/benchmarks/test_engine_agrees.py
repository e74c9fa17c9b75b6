"""The engine model against the test engine that steps in real time and is asked over HTTP: the same requests to both.

Five loads, from a third of what the engine can do to more than it can: what it gets done in the time in which they
come, and what 19 of 20 wait for their first token. Slower than a real one, so that what a client and a busy machine
take is little beside a step.
"""

from dataclasses import dataclass
from itertools import islice, takewhile

import pytest

from scheduler.simulation.engine.core import EngineCore
from scheduler.simulation.engine.profile import EngineProfile
from scheduler.simulation.engine.request import Finished, FirstToken, Request
from scheduler.simulation.shapes import Arrival
from tests.engine.process import EngineProcess
from tests.support.chat import Chat, Outcome, outcomes, steady, ttft_quantiles

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(600)]

PROFILE = EngineProfile().at_speed(0.4)
PROMPT_TOKENS, OUTPUT_TOKENS = 500, 60
SECONDS = 40.0
LOADS = (0.3, 0.6, 0.8, 1.0, 1.3)  # of what it can do
AGREE = 0.15


@dataclass(frozen=True, slots=True)
class Figures:
    """Requests that ended in a second while others came, and seconds to the first token."""

    per_second: float
    ttft_p95_seconds: float

    def __str__(self) -> str:
        return f"{self.per_second:.3f} requests/s, TTFT p95 {self.ttft_p95_seconds:.3f} s"


def most_per_second() -> float:
    """What the engine can do with every slot in use: each request in it costs its prefill and its part of the steps."""
    steps_seconds = OUTPUT_TOKENS * (PROFILE.step_base_seconds + PROFILE.slots * PROFILE.decode_sequence_seconds)
    return PROFILE.slots / (steps_seconds + PROFILE.slots * PROMPT_TOKENS * PROFILE.prefill_token_seconds)


def arrivals_at(load: float) -> list[Arrival]:
    endless = steady(load * most_per_second(), prompt_tokens=PROMPT_TOKENS, output_tokens=OUTPUT_TOKENS, seed=11)
    return list(takewhile(lambda arrival: arrival.at < SECONDS, islice(endless, 100_000)))


def virtual(arrivals: list[Arrival]) -> Figures:
    core, came_at = EngineCore(PROFILE), {}
    ttfts, ended = [], 0
    for number, arrival in enumerate(arrivals):
        came_at[f"{number}"] = arrival.at
        assert core.submit(Request(f"{number}", arrival.prompt_tokens, arrival.output_tokens), arrival.at) is None
    for event in core.advance(100 * SECONDS):
        if isinstance(event, FirstToken):
            ttfts.append(event.at - came_at[event.request.id])
        elif isinstance(event, Finished):
            ended += event.at <= SECONDS
    assert len(ttfts) == len(arrivals)
    return Figures(ended / SECONDS, sorted(ttfts)[int(0.95 * len(ttfts))])


def real(arrivals: list[Arrival]) -> Figures:
    with EngineProcess(PROFILE) as engine, Chat(engine.address, arrivals, patience_seconds=4 * SECONDS) as chat:
        felt = chat.wait(6 * SECONDS)
        began_at = chat.began_at
    assert outcomes(felt) == {Outcome.ANSWERED: len(arrivals)}
    ended = sum(each.ended_at <= began_at + SECONDS for each in felt)
    (p95,) = ttft_quantiles(felt, (0.95,))
    return Figures(ended / SECONDS, p95)


@pytest.mark.parametrize("load", LOADS)
def test_the_model_does_what_the_engine_does(load: float) -> None:
    arrivals = arrivals_at(load)
    model, engine = virtual(arrivals), real(arrivals)
    rate, wait = engine.per_second / model.per_second, engine.ttft_p95_seconds / model.ttft_p95_seconds
    print(f"\nload {load:g} of {most_per_second():.2f} requests/s, {len(arrivals)} requests in {SECONDS:g} s")
    print(f"  real time: {engine}\n  model:     {model}\n  real over model: {rate:.3f}, {wait:.3f}")
    assert abs(rate - 1) <= AGREE
    assert abs(wait - 1) <= AGREE
