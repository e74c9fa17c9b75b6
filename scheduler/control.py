"""The control loop: reads the chat's load, decides how much batch may hold, and publishes it with a short time to live.

It touches signals and Redis only: no database and no broker can stop it.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from scheduler.capacity import Amount
from scheduler.holdout import is_held_out
from scheduler.hours import SharedHours
from scheduler.ledger import Ledger, LedgerUnavailable
from scheduler.limit import Decision, Limit, Rule
from scheduler.note import Note, NotedAmount, NotedLoad, NotedSource
from scheduler.signals.load import Load
from scheduler.signals.sources import PoolSignals
from tickets_batch.settings import Pool

log = logging.getLogger(__name__)

PERIOD_SECONDS = 0.5
LIMIT_SECONDS = 3.0  # how long a limit stands when no new one comes: then batch is at its floor


class PoolControl:
    """Decides for one pool, twice a second; `holdout` is the share of the minutes that are held out.

    Raises SettingsError where a secret that a signal needs is missing.
    """

    def __init__(self, pool: Pool, ledger: Ledger, hours: SharedHours, holdout: float = 0.0) -> None:
        self._ledger = ledger
        self._hours = hours
        self._holdout = holdout
        self._signals = PoolSignals(pool, ledger)
        self._limit = Limit(ledger.capacity, pool.ttft_target_seconds)

    async def open(self) -> None:
        """Start asking the signals; `aclose` is needed from then on."""
        await self._signals.open()

    async def aclose(self) -> None:
        """Stop asking, and close the connections."""
        await self._signals.aclose()
        await self._ledger.aclose()

    async def tick(self, leader_epoch: int) -> None:
        """Read, decide, publish, and pull back where that was decided; what is away now may be there the next time."""
        try:
            load = await self._signals.read()
            now = datetime.now(UTC)
            decision = self._limit.decide(
                load,
                time.monotonic(),
                is_open=self._hours.is_open(now),
                is_held_out=is_held_out(self._ledger.pool, now, self._holdout),
            )
            note = _note(decision, load, now).model_dump_json()
            if not await self._ledger.publish(decision.published, LIMIT_SECONDS, leader_epoch, note):
                log.warning("pool %s: a newer leader has published a limit; ours was refused", self._ledger.pool)
            elif decision.pull_back:
                await self._pull_back(decision.rule)
        except LedgerUnavailable as error:
            log.warning("pool %s: no limit was published: %s", self._ledger.pool, error)

    async def _pull_back(self, rule: Rule) -> None:
        revoked = await self._ledger.revoke(self._ledger.capacity.floor)
        if revoked:
            log.info("pool %s: %d requests asked back: %s", self._ledger.pool, len(revoked), rule)


async def control(pools: Sequence[PoolControl], leader_epoch: Callable[[], int | None]) -> None:
    """Control every pool while we lead; runs until it is cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        next_at = loop.time() + PERIOD_SECONDS
        epoch = leader_epoch()
        if epoch is not None:
            await asyncio.gather(*(_tick(pool, epoch) for pool in pools))
        await asyncio.sleep(next_at - loop.time())


async def _tick(pool: PoolControl, epoch: int) -> None:
    try:
        await pool.tick(epoch)
    except Exception:  # a bug in one pool's tick must not leave the others without a limit
        log.exception("a pool's limit was not decided")


def _note(decision: Decision, load: Load, now: datetime) -> Note:
    return Note(
        rule=decision.rule,
        load=NotedLoad(
            in_flight=_noted(load.in_flight),
            waiting=load.waiting,
            oldest_waiting_seconds=load.oldest_waiting_seconds,
            ttft_seconds=max(load.ttfts_seconds, default=None),
            sources=tuple(
                NotedSource(name=source.name, age_seconds=source.age_seconds, is_fresh=source.is_fresh)
                for source in load.sources
            ),
            is_blind=load.is_blind,
            is_congested=load.is_congested,
        ),
        at=now.timestamp(),
    )


def _noted(amount: Amount) -> NotedAmount:
    return NotedAmount(slots=amount.slots, tokens=amount.tokens)
