"""The gate of one pool for one process: permits asked for, kept alive, taken back."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from scheduler.ledger import Ledger, LedgerUnavailable
from scheduler.permit import Ask, Kind, Permit, Refusal, Standing
from tickets_batch.settings import Engine
from workers.forever import for_ever

log = logging.getLogger(__name__)

RENEW_SECONDS = 1.0  # so long it may take until a revocation that was not heard is learned
LEASE_CHECK_SECONDS = 0.25
LISTEN_AGAIN_SECONDS = 0.5

# How long an engine may go on with a request whose connection was closed while it streamed. vLLM and llama.cpp look at
# every step; of the others some notice at the first token only.
ABORT_SECONDS: dict[Engine, float] = {"vllm": 0.3, "llama.cpp": 0.3}
ABORT_SECONDS_ELSEWHERE = 3.0


@dataclass(frozen=True, slots=True)
class Holding:
    """A permit in use; `withdraw` stops the request, and returns at once."""

    permit: Permit
    withdraw: Callable[[], None]
    since: float


class Gate:
    """Holds this process's permits of one pool. All methods run on one event loop.

    A holder is told to stop when its permit was revoked or is gone, and when no renewal succeeded for one lease: then
    the ledger has given the slot away, or will.
    """

    def __init__(self, ledger: Ledger, engine: Engine, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._ledger = ledger
        self._abort_seconds = ABORT_SECONDS.get(engine, ABORT_SECONDS_ELSEWHERE)
        self._monotonic = monotonic
        self._held: dict[str, Holding] = {}
        self._untold: dict[str, Permit] = {}  # have their first token, which Redis was not there to hear of
        self._renewed_at = monotonic()
        self._loops: list[asyncio.Task[None]] = []

    def open(self) -> None:
        """Begin to renew and to listen."""
        self._loops = [
            asyncio.create_task(for_ever(RENEW_SECONDS, self._renew)),
            asyncio.create_task(self._listen_for_ever()),
            asyncio.create_task(for_ever(LEASE_CHECK_SECONDS, self._give_up_after_one_lease)),
        ]

    async def aclose(self) -> None:
        """Stop renewing and close the connections; what is still held expires by itself."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await self._ledger.aclose()

    async def ask(self, ask: Ask) -> Permit | Refusal:
        """Ask for one batch permit. Raises LedgerUnavailable."""
        return await self._ledger.acquire(Kind.BATCH, ask)

    def hold(self, permit: Permit, withdraw: Callable[[], None]) -> None:
        """Keep a permit alive until it is given back."""
        self._held[permit.token] = Holding(permit, withdraw, self._monotonic())

    async def first_token(self, permit: Permit) -> None:
        """The engine has begun to answer; a permit that was asked back is withdrawn."""
        try:
            standing = await self._ledger.first_token(permit)
        except LedgerUnavailable as error:
            log.warning("%s", error)
            if permit.token in self._held:
                self._untold[permit.token] = permit
            return
        if standing is not Standing.GONE:  # a new ledger does not know it yet: the next renewal tells
            self._heed({permit.token: standing})

    async def give_back(self, permit: Permit, *, aborted: bool) -> None:
        """Give a permit back; after an abort it stays counted until the engine is sure to have noticed."""
        self._held.pop(permit.token, None)
        self._untold.pop(permit.token, None)
        try:
            if aborted:
                await self._ledger.drain(permit, self._abort_seconds)
            else:
                await self._ledger.release(permit)
        except LedgerUnavailable as error:
            log.warning("a permit was not given back and expires by itself: %s", error)

    async def pause(self, seconds: float) -> None:
        """Keep every process's batch requests from this pool for a while."""
        try:
            await self._ledger.pause(seconds)
        except LedgerUnavailable as error:
            log.warning("the pause was not announced: %s", error)

    async def _renew(self) -> None:
        asked_at = self._monotonic()
        try:
            standings = await self._ledger.renew([holding.permit for holding in self._held.values()], self._held)
        except LedgerUnavailable as error:
            log.warning("permits were not renewed: %s", error)
        else:
            self._renewed_at = asked_at
            self._heed(standings)
            await self._tell_late()

    async def _tell_late(self) -> None:
        """Their prompts would count as unread for as long as they are answered."""
        for token, permit in list(self._untold.items()):
            try:
                await self._ledger.first_token(permit, is_late=True)
            except LedgerUnavailable as error:
                log.warning("%s", error)
                return
            self._untold.pop(token, None)

    async def _listen_for_ever(self) -> None:
        while True:
            try:
                async with aclosing(self._ledger.revocations()) as revocations:
                    async for tokens in revocations:
                        self._heed(dict.fromkeys(tokens, Standing.REVOKED))
            except LedgerUnavailable:
                await asyncio.sleep(LISTEN_AGAIN_SECONDS)  # until then the renewals tell

    def _heed(self, standings: dict[str, Standing]) -> None:
        for token, standing in standings.items():
            holding = self._held.get(token)
            if holding is not None and standing is not Standing.HELD:
                holding.withdraw()

    async def _give_up_after_one_lease(self) -> None:
        """Apart from the renewals, because one that gets no answer takes its time."""
        one_lease_ago = self._monotonic() - self._ledger.lease_seconds
        for holding in list(self._held.values()):
            if max(self._renewed_at, holding.since) <= one_lease_ago:
                holding.withdraw()
