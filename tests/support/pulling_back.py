"""How long a pull-back takes, as the engine sees it: trial after trial of one worker under long tickets."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from scheduler.permit import Ask, Kind, Permit
from tests.engine.process import EngineHandle
from tests.support.shift import POOL, Shift
from tests.support.wait import wait_until_async

OUTPUT_TOKENS = 400
BODY = "Where is my parcel? It was sent a week ago. " * 90  # about 1,000 tokens: one fits batch's floor, two do not
FULL = POOL.most_batch.slots


@dataclass(frozen=True, slots=True)
class PullBack:
    """One trial; seconds from just before the chat's ask, by the engine's log where nothing else is said."""

    asked_seconds: float  # until the ledger had answered
    withdrawn: int
    seconds: float  # until the engine had let the last one go


async def pull_back(shift: Shift, engine: EngineHandle) -> PullBack:
    """Fill the engine with tickets, ask for all the room that batch has borrowed, and see when the engine is free."""
    await wait_until_async(lambda: batch_at(engine) >= FULL, "the engine to be full of tickets", 30)
    ended = engine.state()["ended"]
    at, started = time.time(), time.monotonic()
    chat = await shift.ledger.acquire(Kind.INTERACTIVE, Ask(POOL.most_interactive.tokens - 100, 100, streamed=False))
    asked_seconds = time.monotonic() - started
    assert isinstance(chat, Permit)
    renewing = asyncio.create_task(_renew(shift, chat))
    try:
        await wait_until_async(lambda: batch_at(engine) <= POOL.floor.slots, "the engine to be left alone")
    finally:
        renewing.cancel()
        await shift.ledger.release(chat)
    gone = [row for row in engine.log(after=ended) if row.outcome == "aborted" and row.ended_at]
    return PullBack(asked_seconds, len(gone), max(row.ended_at or 0.0 for row in gone) - at)


def batch_at(engine: EngineHandle) -> int:
    """Tickets at the engine now."""
    seen: dict[str, Any] = engine.state()["classes"].get("batch", {})
    return int(seen.get("running", 0)) + int(seen.get("waiting", 0))


async def _renew(shift: Shift, chat: Permit) -> None:
    while True:
        await asyncio.sleep(1.0)
        await shift.ledger.renew([chat])
