"""The receipt in sentences: what the batch cost the chat, and what that rests on."""

from collections.abc import Iterator

from scheduler.receipt import CONFIDENCE, LEAST_HELD_OUT, LEAST_OTHERS, SAMPLE_SECONDS, Cost
from tickets_batch.progress import duration
from tickets_batch.report.figures import Figures
from tickets_batch.report.pool_night import LEAST_DRAWN, PoolNight
from tickets_batch.words import counted


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
        f"{_verdict(cost, on)}: 19 in 20 first tokens came within {_seconds(receipt.ttft_seconds)} where it could "
        f"borrow, and within {_seconds(receipt.floor_ttft_seconds)} in the {receipt.held_out} minutes in which it was "
        f"held at its floor by chance, compared with {receipt.others:,} others of a like chat."
    )


def undrawn_in_words(figures: Figures) -> list[str]:
    """Of which pools there are no curves, and why."""
    return [
        f"Of pool {pool.name} there are no curves: {_why_unseen(pool)}."
        for pool in figures.pools
        if not pool.curves.can_be_drawn
    ]


def _why_unseen(pool: PoolNight) -> str:
    if pool.night_seconds < LEAST_DRAWN * SAMPLE_SECONDS:
        return (
            f"because the scheduler writes a sample every {SAMPLE_SECONDS:g} seconds, and the batch took "
            f"{duration(pool.night_seconds)}"
        )
    return f"because no scheduler was there to write a sample every {SAMPLE_SECONDS:g} seconds"


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


def _seconds(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds:.2f} s"


def _signed(seconds: float) -> str:
    return f"{round(seconds, 2) + 0.0:.2f}".replace("-", "−")
