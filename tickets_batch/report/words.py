"""The receipt in sentences: what the batch cost the chat, and what that rests on."""

from collections.abc import Iterator

from scheduler.receipt import CONFIDENCE, LEAST_HELD_OUT, LEAST_OTHERS, SAMPLE_SECONDS, Cost
from tickets_batch.progress import duration
from tickets_batch.report.figures import Figures
from tickets_batch.report.pool_night import LEAST_DRAWN, PoolNight
from tickets_batch.words import counted

SMALL_SECONDS = 0.01


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
        f"Put back because the chat came first: {counted(batch.yields, 'ticket')}, {batch.withdrawn:,} of them in "
        f"flight; wasted on calls stopped before their end: {counted(batch.wasted_tokens, 'token')}{share}.",
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
        f"{_verdict(cost, on)}: in the {receipt.held_out} minutes in which it was held at its floor by chance, the "
        f"mean of the ten-second p95s of the chat's first tokens was {_length(receipt.floor_ttft_seconds)}; with that "
        f"cost, told by {receipt.others:,} others of a like chat, it comes to {_length(receipt.ttft_seconds)}. "
        f"A cost under {_length(cost.least_told_seconds)} could not have been told from chance; what the floor itself "
        "costs is not in it."
    )


def undrawn_in_words(figures: Figures) -> list[str]:
    """Of which pools there are no curves, and why."""
    return [
        f"Of pool {pool.name} there are no curves: {_why_unseen(pool)}."
        for pool in figures.pools
        if not pool.curves.can_be_drawn
    ]


def left_out_in_words(figures: Figures) -> list[str]:
    """Of which pools not every change is among the events."""
    return [
        f"What batch had of pool {pool.pool} changed {pool.count:,} times; shown are the {len(pool.shown)} changes "
        "whose state lasted longest."
        for pool in figures.pool_changes
        if len(pool.shown) < pool.count
    ]


def _why_unseen(pool: PoolNight) -> str:
    if pool.night_seconds < LEAST_DRAWN * SAMPLE_SECONDS:
        return (
            f"because the scheduler writes a sample every {SAMPLE_SECONDS:g} seconds, and the batch took "
            f"{duration(pool.night_seconds)}"
        )
    return f"because no scheduler was there to write a sample every {SAMPLE_SECONDS:g} seconds"


def _verdict(cost: Cost, on: str) -> str:
    between = f"{CONFIDENCE:.0%} interval {_length(cost.low_seconds)} to {_length(cost.high_seconds)}"
    if cost.low_seconds > 0:
        return f"The batch cost the chat {_length(cost.seconds)} to the first token {on} ({between})"
    if cost.high_seconds < 0:
        return f"Beside the batch the chat waited {_length(-cost.seconds)} less for its first token {on} ({between})"
    return (
        f"The batch cost the chat {on} nothing that can be told from chance ({_length(cost.seconds)} to the first "
        f"token, {between})"
    )


def _lacks(pool: PoolNight) -> str:
    receipt = pool.receipt
    if not pool.seen_seconds:
        return f"nothing was recorded of it, {_why_unseen(pool)}"
    if not receipt.held_out + receipt.others:
        return "no time to first token of the chat is known; the gateway measures it"
    if receipt.held_out < LEAST_HELD_OUT:
        held_out = f"{counted(receipt.held_out, 'minute')} with chat"
        return f"{held_out} held out, and {LEAST_HELD_OUT} are needed (a longer night, or more of [scheduler] holdout)"
    return f"{counted(receipt.others, 'other minute')} with chat, and {LEAST_OTHERS} are needed"


def _floors(figures: Figures) -> Iterator[str]:
    for pool in figures.pools:
        if pool.floor_seconds is not None and not pool.is_dedicated and pool.seen_seconds:
            at_floor, seen = duration(pool.floor_seconds), duration(pool.seen_seconds)
            yield f"The batch was at its floor on pool {pool.name} for {at_floor} of {seen}."


def _length(seconds: float | None) -> str:
    """In hundredths of a second; what is less than one of them, in milliseconds."""
    if seconds is None:
        return "?"
    if abs(seconds) >= SMALL_SECONDS:
        return f"{seconds:.2f} s".replace("-", "−")
    return f"{round(1000 * seconds, 2) + 0.0:.2g} ms".replace("-", "−")
