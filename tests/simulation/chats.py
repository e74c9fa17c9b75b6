"""The chat of the table: the shapes of the product, and the public trace where its file is there."""

import random
from functools import cache

from scheduler.simulation import shapes
from scheduler.simulation.shapes import Arrival
from scheduler.simulation.site import Site
from scheduler.simulation.trace import Trace
from tests.simulation.sites import TRACE_COPIES
from tests.support.shared_data import shared_data

TRACE = "azure-llm-trace/conversation.csv"


def trace(site: Site, seed: int, seconds: float) -> list[Arrival]:
    """The public trace from a random moment on, thinned so that chat alone uses 40% of the engines.

    Where one copy is too little, several lie over each other, each from its own moment on.
    """
    rng, recorded = random.Random(seed), _read_trace()
    left, arrivals = TRACE_COPIES[site.name], list[Arrival]()
    while left > 0:
        arrivals += recorded.lap(rng.uniform(0, recorded.seconds), seconds, left, rng)
        left -= 1
    return sorted(arrivals)


SHAPES = shapes.SHAPES | {"trace": trace}
TABLE_SHAPES = ("alternating", "burst", "trace", "random")  # to the others nothing was tuned


@cache
def _read_trace() -> Trace:
    return Trace.read(shared_data(TRACE))
