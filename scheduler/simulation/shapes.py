"""The shapes of chat traffic. Each is a function of a seed: the same seed gives the same requests to every row."""

import math
import random
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple

from scheduler.simulation.site import Site


class Arrival(NamedTuple):
    """One chat request: when it comes, in seconds, and how large it is."""

    at: float
    prompt_tokens: int
    output_tokens: int


def alternating(site: Site, seed: int, seconds: float) -> list[Arrival]:
    """Ten seconds at 1/s, ten at 5/s."""
    rng, scale = random.Random(seed), float(site.chat_scale)
    times = _poisson(lambda at: scale if at % 20 < 10 else 5 * scale, 5 * scale, seconds, rng)
    return [Arrival(at, 512, 100) for at in times]


def burst(site: Site, seed: int, seconds: float) -> list[Arrival]:
    """Eight at once every eight seconds, over 1/s."""
    rng, scale = random.Random(seed), float(site.chat_scale)
    times = _poisson(lambda _: scale, scale, seconds, rng)
    for second in range(8, math.ceil(seconds), 8):
        times += [second + number * 1e-4 for number in range(round(8 * scale))]
    return [Arrival(at, 1000, 100) for at in sorted(times)]


def random_rates(site: Site, seed: int, seconds: float) -> list[Arrival]:
    """A rate between 0.2/s and 6/s for 5 to 60 seconds, then another; prompts and answers of random length."""
    rng, scale = random.Random(seed), float(site.chat_scale)
    starts, rates = [0.0], [rng.choice(_RATES)]
    while starts[-1] < seconds:
        starts.append(starts[-1] + rng.uniform(5, 60))
        rates.append(rng.choice(_RATES))
    times = _poisson(lambda at: scale * rates[bisect_right(starts, at) - 1], scale * max(_RATES), seconds, rng)
    return [Arrival(at, max(16, _lognormal(rng, 600, 0.8)), min(800, max(4, _lognormal(rng, 90, 0.6)))) for at in times]


def waves(site: Site, seed: int, seconds: float) -> list[Arrival]:
    """Between 0.5/s and 5.5/s and back, once in two minutes."""
    rng, scale = random.Random(seed), float(site.chat_scale)
    times = _poisson(lambda at: scale * (3 + 2.5 * math.sin(at * math.tau / 120)), 5.5 * scale, seconds, rng)
    return [Arrival(at, max(16, _lognormal(rng, 400, 0.5)), max(4, _lognormal(rng, 80, 0.4))) for at in times]


def long_answers(site: Site, seed: int, seconds: float) -> list[Arrival]:
    """Few requests that write much: 0.6/s, 300 in and about 400 out."""
    rng, scale = random.Random(seed), float(site.chat_scale)
    times = _poisson(lambda _: 0.6 * scale, 0.6 * scale, seconds, rng)
    return [Arrival(at, 300, min(1500, max(20, _lognormal(rng, 400, 0.5)))) for at in times]


def long_prompts(site: Site, seed: int, seconds: float) -> list[Arrival]:
    """Five documents of 4,000 tokens at once, every half minute or so, over 1/s of small talk."""
    rng, scale = random.Random(seed), float(site.chat_scale)
    arrivals = [Arrival(at, 200, 60) for at in _poisson(lambda _: scale, scale, seconds, rng)]
    at = rng.expovariate(1 / 30)
    while at < seconds:
        arrivals += [Arrival(at + number * 0.01, 4000, 150) for number in range(max(1, round(5 * scale)))]
        at += rng.expovariate(1 / 30)
    return sorted(arrival for arrival in arrivals if arrival.at < seconds)


def overload(site: Site, seed: int, seconds: float) -> list[Arrival]:
    """More than the engines can do, all the time: 12/s."""
    rng, scale = random.Random(seed), float(site.chat_scale)
    return [Arrival(at, 512, 100) for at in _poisson(lambda _: 12 * scale, 12 * scale, seconds, rng)]


SHAPES: dict[str, Callable[[Site, int, float], list[Arrival]]] = {
    "alternating": alternating,
    "burst": burst,
    "random": random_rates,
    "waves": waves,
    "long-answers": long_answers,
    "long-prompts": long_prompts,
    "overload": overload,
}
_RATES = (0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0)


def _poisson(rate: Callable[[float], float], peak: float, seconds: float, rng: random.Random) -> list[float]:
    """Arrivals of a Poisson process by thinning one of the peak rate."""
    longest = math.ceil(seconds * peak + 10 * math.sqrt(seconds * peak) + 10)
    times = accumulate(rng.expovariate(peak) for _ in range(longest))
    return [at for at in times if at < seconds and rng.random() < rate(at) / peak]


def _lognormal(rng: random.Random, median: float, sigma: float) -> int:
    return int(rng.lognormvariate(math.log(median), sigma))
