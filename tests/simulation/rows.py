"""The rows of the table: what each is called, and one night of it."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from statistics import fmean

from scheduler.simulation.admission import Admission
from scheduler.simulation.site import Site
from scheduler.simulation.tickets import TicketQueue, endless
from scheduler.simulation.world import Policy, Tally, World
from tests.simulation.chats import SHAPES
from tests.simulation.clairvoyant import SPARES, Clairvoyant
from tests.simulation.peers import FixedCap

ALONE = "chat alone"
NO_GATE = "no gate"
ENGINE_PRIORITY = "engine priority, no gate"
OURS = "ours"
OURS_PRIORITY = "ours, engine priority"
CAP = "cap "
CLAIRVOYANT = "clairvoyant, spare "


@dataclass(frozen=True, slots=True)
class Result:
    """One row: seconds to the chat's first token, what batch got done, and at what price; of one seed or the mean."""

    ttft_p50: float
    ttft_p95: float
    ttft_p99: float
    tickets_per_second: float
    prompt_tokens_per_second: float
    wasted_share: float
    refused: float
    refused_above_floor: float
    withdrawn: float
    pull_back_p99: float


@dataclass(frozen=True, slots=True)
class Night:
    """Everything that a night depends on, apart from the sources."""

    site: Site
    shape: str
    kind: str
    seed: int
    seconds: float
    row: str


def caps(site: Site) -> list[int]:
    """1 to 16 of 20 slots, in proportion; with the floor."""
    return sorted({max(1, round(number * site.slots / 20)) for number in range(1, 17)} | {site.capacity.floor.slots})


def spares(site: Site) -> list[int]:
    """The reserves of the clairvoyant, in proportion to the chat."""
    return sorted({round(number * float(site.chat_scale)) for number in SPARES})


def play(night: Night) -> Result:
    """Play one night."""
    site = night.site.with_priority() if night.row in (ENGINE_PRIORITY, OURS_PRIORITY) else night.site
    chat = SHAPES[night.shape](night.site, night.seed, night.seconds)
    policy: Policy
    if night.row == ALONE:
        policy = FixedCap(0)
    elif night.row in (NO_GATE, ENGINE_PRIORITY):
        policy = FixedCap(2 * site.slots, priority=1)
    elif night.row in (OURS, OURS_PRIORITY):
        policy = Admission(priority=1, seed=night.seed)
    elif night.row.startswith(CLAIRVOYANT):
        policy = Clairvoyant(chat, int(night.row.removeprefix(CLAIRVOYANT)))
    else:
        policy = FixedCap(int(night.row.removeprefix(CAP)))
    world = World(site, chat, TicketQueue(endless(night.kind, night.seed)), policy, night.seconds)
    return _result(world.run(), night.seconds)


def mean(results: Iterable[Result]) -> Result:
    """The mean over seeds of each figure."""
    found = list(results)
    return Result(*(fmean(getattr(result, field.name) for result in found) for field in fields(Result)))


def _result(tally: Tally, seconds: float) -> Result:
    ttfts = sorted(tally.ttfts_seconds)
    return Result(
        ttft_p50=_quantile(ttfts, 0.50),
        ttft_p95=_quantile(ttfts, 0.95),
        ttft_p99=_quantile(ttfts, 0.99),
        tickets_per_second=tally.tickets / seconds,
        prompt_tokens_per_second=tally.ticket_prompt_tokens / seconds,
        wasted_share=tally.wasted_tokens / max(1, tally.wasted_tokens + tally.ticket_tokens),
        refused=tally.refused,
        refused_above_floor=tally.refused_above_floor,
        withdrawn=tally.withdrawn,
        pull_back_p99=_quantile(sorted(gone_at - asked_at for asked_at, gone_at in tally.pull_backs.items()), 0.99),
    )


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
