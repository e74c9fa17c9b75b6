"""How much of the engines a stream of chat requests uses when it has them for itself."""

from collections.abc import Sequence
from itertools import cycle

from scheduler.simulation.engine.core import EngineCore
from scheduler.simulation.engine.request import Finished, Request
from scheduler.simulation.shapes import Arrival
from scheduler.simulation.site import Site


def share_used(site: Site, chat: Sequence[Arrival]) -> float:
    """Slot-seconds or token-seconds used over those there are, whichever is more, until the last arrival."""
    engines = [EngineCore(site.profile) for _ in range(site.engines)]
    slot_seconds = token_seconds = 0.0
    for number, (arrival, engine) in enumerate(zip(chat, cycle(engines), strict=False)):
        assert engine.submit(Request(f"c{number}", arrival.prompt_tokens, arrival.output_tokens), arrival.at) is None
        for event in engine.advance(arrival.at):
            if isinstance(event, Finished):
                slot_seconds += event.at - event.started_at
                tokens = event.request.prompt_tokens + event.request.output_tokens
                token_seconds += tokens * (event.at - event.started_at)
    tokens = site.profile.kv_capacity_tokens * site.engines
    return max(slot_seconds / site.slots, token_seconds / tokens) / chat[-1].at
