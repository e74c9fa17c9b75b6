"""The receipt in sentences: what the batch cost the chat, and what that rests on."""

from collections.abc import Iterator

from scheduler.receipt import CONFIDENCE, LEAST_HELD_OUT, LEAST_OTHERS, Cost
from tickets_batch.progress import duration
from tickets_batch.report.figures import Figures
from tickets_batch.report.pool_night import PoolNight


def receipt_in_words(figures: Figures) -> list[str]:
    """One sentence for each pool."""
    return [pool_in_words(pool) for pool in figures.pools]


def price_in_words(figures: Figures) -> list[str]:
    """What the chat's protection took: time at the floor, and work that was withdrawn."""
    batch = figures.batch
    tokens = batch.prompt_tokens + batch.completion_tokens
    share = f", {batch.wasted_tokens / tokens:.1%} of all" if tokens and batch.wasted_tokens else ""
    return [
        *_floors(figures),
        f"{batch.yields:,} tickets were put back because the chat came first, {batch.withdrawn:,} of them in flight; "
        f"{batch.wasted_tokens:,} tokens were wasted on calls stopped before their end{share}.",
    ]


def pool_in_words(pool: PoolNight) -> str:
    """What the batch cost the chat on this pool, or why that cannot be told."""
    receipt, on = pool.receipt, f"on pool {pool.name}"
    if pool.is_dedicated:
        return f"The batch cost the chat nothing {on}: the pool was its own."
    if receipt.cost is None:
        return f"What the batch cost the chat {on} cannot be told: {_lacks(pool)}."
    cost = receipt.cost
    return (
        f"{_verdict(cost, on)}: 19 in 20 first tokens came within {_seconds(receipt.ttft_seconds)} where it could "
        f"borrow, and within {_seconds(receipt.floor_ttft_seconds)} in the {receipt.held_out} minutes in which it was "
        f"held at its floor by chance, compared with {receipt.others:,} others of a like chat."
    )


def _verdict(cost: Cost, on: str) -> str:
    between = f"{CONFIDENCE:.0%} interval {_signed(cost.low_seconds)} to {_signed(cost.high_seconds)} s"
    if cost.low_seconds > 0:
        return f"The batch cost the chat {cost.seconds:.2f} s to the first token {on} ({between})"
    if cost.high_seconds < 0:
        return f"Beside the batch the chat waited {-cost.seconds:.2f} s less for its first token {on} ({between})"
    return (
        f"The batch cost the chat {on} nothing that can be told from chance ({_signed(cost.seconds)} s to the first "
        f"token, {between})"
    )


def _lacks(pool: PoolNight) -> str:
    receipt = pool.receipt
    if not pool.seen_seconds:
        return "nothing was recorded of it"
    if not receipt.held_out + receipt.others:
        return "no time to first token of the chat is known; the gateway measures it"
    if receipt.held_out < LEAST_HELD_OUT:
        held_out = f"{receipt.held_out} minute{'' if receipt.held_out == 1 else 's'} with chat"
        return f"{held_out} held out, and {LEAST_HELD_OUT} are needed (a longer night, or more of [scheduler] holdout)"
    return f"{receipt.others} other minutes with chat, and {LEAST_OTHERS} are needed"


def _floors(figures: Figures) -> Iterator[str]:
    for pool in figures.pools:
        if pool.floor_seconds is not None and not pool.is_dedicated and pool.seen_seconds:
            at_floor, seen = duration(pool.floor_seconds), duration(pool.seen_seconds)
            yield f"The batch was at its floor on pool {pool.name} for {at_floor} of {seen}."


def _seconds(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds:.2f} s"


def _signed(seconds: float) -> str:
    return f"{round(seconds, 2) + 0.0:.2f}".replace("-", "−")
