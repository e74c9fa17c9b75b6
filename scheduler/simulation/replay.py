"""The chat of a night that was: requests like those that the stored samples of a pool's load tell of."""

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from scheduler.simulation.engine.profile import EngineProfile
from scheduler.simulation.shapes import Arrival
from scheduler.simulation.trace import Trace

OUTPUT_SHARE = 100 / 612  # of a request's tokens, where it cannot be told from how long requests stayed


class Stretch(NamedTuple):
    """The `seconds` before a sample: the chat requests that came in it, and what chat had in flight at its end."""

    seconds: float
    arrivals: int
    slots: int
    tokens: int


def replayed(stretches: Sequence[Stretch], profile: EngineProfile, rng: random.Random) -> Trace | None:
    """Chat that loads the pool as it did then; None where there was none.

    The samples keep no single request. Each stretch gets its requests at random moments; their size is what one in
    flight held on average. How much of it is output follows from how long a request stayed (Little's law: in flight
    over arrivals in a second) on an engine of this profile. Where only the engine was observed no arrivals are known:
    they follow from those in flight in the same way.
    """
    slot_seconds = sum(one.slots * one.seconds for one in stretches)
    arrivals = sum(one.arrivals for one in stretches)
    if not slot_seconds and not arrivals:
        return None
    mean_tokens = _mean_tokens(stretches)
    if arrivals:
        output_share = _output_share(mean_tokens, slot_seconds / arrivals, profile)
        stayed = 0.0
    else:
        output_share = OUTPUT_SHARE
        stayed = _seconds(mean_tokens, output_share, profile)
    found, begin, owed = list[Arrival](), 0.0, 0.0
    for one in stretches:
        owed += one.arrivals if arrivals else one.slots * one.seconds / stayed
        tokens = one.tokens / one.slots if one.slots and one.tokens else mean_tokens
        output = max(1, round(tokens * output_share))
        prompt = max(1, round(tokens) - output)
        while owed >= 1:
            found.append(Arrival(begin + rng.random() * one.seconds, prompt, output))
            owed -= 1
        begin += one.seconds
    return Trace(tuple(sorted(found)), begin)


def _mean_tokens(stretches: Iterable[Stretch]) -> float:
    """What one chat request in flight held on average; where none was seen in flight, a usual one."""
    known = [one for one in stretches if one.slots and one.tokens]
    slots = sum(one.slots for one in known)
    return sum(one.tokens for one in known) / slots if slots else 612.0


def _output_share(tokens: float, stayed_seconds: float, profile: EngineProfile) -> float:
    prefill, step = profile.prefill_token_seconds, _step_seconds(profile)
    if step <= prefill:
        return OUTPUT_SHARE
    output = (stayed_seconds - tokens * prefill) / (step - prefill)
    return min(0.9, max(0.01, output / tokens))


def _seconds(tokens: float, output_share: float, profile: EngineProfile) -> float:
    output = tokens * output_share
    seconds = output * _step_seconds(profile) + (tokens - output) * profile.prefill_token_seconds
    return max(seconds, 0.001)


def _step_seconds(profile: EngineProfile) -> float:
    """A decoding step with half of the slots in use."""
    return profile.step_base_seconds + profile.slots / 2 * profile.decode_sequence_seconds
