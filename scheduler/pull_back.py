"""Which batch requests are asked back, and which are left to end by themselves: pure, and the same rule as in Lua."""

from collections.abc import Iterable
from dataclasses import dataclass

from scheduler.capacity import Amount, total

SOON_MS = 100  # what ends within this is as good as gone: asking it back would waste its work and win nothing
SPARE_MS = 200  # what ends within this is not asked back for a chat request that needs its place
DRAINER_MS = 1500  # nor what ends within this when batch goes back to its floor: no one request waits for its place


@dataclass(frozen=True, slots=True)
class Running:
    """One batch request in flight; `left_ms` is how long it will take yet, infinite where nobody knows."""

    token: str
    order: int
    amount: Amount
    has_first_token: bool
    left_ms: float
    prompt_tokens: int
    age_ms: int


def victims(running: Iterable[Running], room: Amount, floor: Amount, spare_ms: int) -> list[str]:
    """Those to ask back for batch to fit `room`, or its floor where that is more, within SOON_MS.

    The youngest without a first token go first: they have cost least. Who ends within `spare_ms` is left to, and with
    none to spare nobody's end is counted on: what is late may be late for long.
    """
    own = sorted(running, key=_cheapest_first)
    soon_ms = min(SOON_MS, spare_ms)
    held, leaving = total(r.amount for r in own), total(r.amount for r in own if r.left_ms <= soon_ms)
    chosen = []
    for candidate in own:
        over = held - leaving - room.at_least(floor)
        if over.slots <= 0 and over.tokens <= 0:
            break
        if candidate.left_ms > spare_ms:
            held -= candidate.amount
            chosen.append(candidate.token)
    return chosen


def in_front(running: Iterable[Running], most_tokens: int, tokens_per_second: int, floor: Amount) -> list[str]:
    """Those to ask back for at most `most_tokens` of batch's prompts to be still to go in front of a chat request.

    What was prefilled of a prompt is guessed from its age. The youngest go first, and none of the floor.
    """
    own = sorted(running, key=_cheapest_first)
    prefilling = [r for r in own if not r.has_first_token]
    held, ahead, chosen = total(r.amount for r in own), sum(_to_go(r, tokens_per_second) for r in prefilling), []
    for candidate in prefilling:
        if ahead <= most_tokens:
            break
        if candidate.left_ms > SPARE_MS and floor.fits(held - candidate.amount):
            held -= candidate.amount
            ahead -= _to_go(candidate, tokens_per_second)
            chosen.append(candidate.token)
    return chosen


def _to_go(running: Running, tokens_per_second: int) -> int:
    return max(0, running.prompt_tokens - running.age_ms * tokens_per_second // 1000)


def _cheapest_first(running: Running) -> tuple[bool, int]:
    return running.has_first_token, -running.order
