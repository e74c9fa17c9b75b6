"""The door of one pool for one process: chat requests let in, counted while they are inside, and let out again."""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Self

from scheduler.ledger import Ledger, LedgerUnavailable
from scheduler.permit import Ask, Kind, Permit, Reason, Refusal
from scheduler.pools import capacity_of
from tickets_batch.errors import SettingsError
from tickets_batch.settings import Pool, Settings

log = logging.getLogger(__name__)

ANSWER_SECONDS = 0.4  # the most that a hanging Redis may hold a chat request up
LAST_LOOK_SECONDS = 0.02  # where it was our own loop that stood still, the answer lies here already
ASK_AGAIN_SECONDS = 0.05
BEAT_SECONDS = 1.0
MOST_OWED = 1000  # permits to give back when Redis is there again; the others expire by themselves


@dataclass(slots=True, eq=False)
class Visit:
    """One request that was let in. `is_open`: Redis was away, so that nobody was asked."""

    permit: Permit
    is_open: bool
    is_waiting: bool  # for its first token, where one will be seen


class Door:
    """Lets interactive requests into one pool, at most for a moment making them wait. For one event loop.

    Without Redis it stands open: chat goes on, uncounted by the scheduler, which takes its silence for the worst.
    What is let in is renewed until it leaves, and entered again in a ledger that has lost or never seen it.
    """

    def __init__(self, ledger: Ledger, wait_seconds: float) -> None:
        self._ledger = ledger
        self._wait_seconds = wait_seconds
        self._inside: dict[str, Permit] = {}
        self._owed: deque[Permit] = deque(maxlen=MOST_OWED)
        self._untold: dict[str, Permit] = {}  # inside, have their first token, which Redis was not there to hear of
        self._turn = asyncio.Lock()  # who waits, in the order of coming; one of them asks for all
        self._has_left = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._beating: asyncio.Task[None] | None = None
        self.is_away = False  # Redis is
        self.waiting = 0
        self.admitted_open = 0

    @classmethod
    def connect(cls, redis_url: str, pool: Pool, wait_seconds: float) -> Self:
        """A door on a ledger with its own connections. Raises SettingsError when the URL is none."""
        return cls(Ledger.connect(redis_url, pool.name, capacity_of(pool)), wait_seconds)

    @property
    def in_flight(self) -> int:
        """Requests inside now."""
        return len(self._inside)

    def open(self) -> None:
        """Begin to beat and to renew."""
        self._beating = asyncio.create_task(self._beat_for_ever())

    async def aclose(self) -> None:
        """Give back what is held, if Redis lets us, and close the connections."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=ANSWER_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._ledger.aclose()

    async def enter(self, ask: Ask) -> Visit | Refusal:
        """Let a request in, at once or within the bounded wait, or say why not; TOO_LARGE is never waited for."""
        if not self._turn.locked():
            answer = await self._ask(ask)
            if not _is_full(answer):
                return answer
        self.waiting += 1
        try:
            async with asyncio.timeout(self._wait_seconds), self._turn:
                while True:
                    self._has_left.clear()
                    answer = await self._ask(ask)
                    if not _is_full(answer):
                        return answer
                    await self._room_or_time()
        except TimeoutError:
            self._tell(self._ledger.refuse())
            return Refusal(Reason.CAPACITY)
        finally:
            self.waiting -= 1

    @property
    def most_tokens(self) -> int:
        """The largest request of the chat that the pool could ever carry."""
        return self._ledger.capacity.most_interactive.tokens

    def first_token(self, visit: Visit) -> None:
        """The model has begun to answer; returns at once, and saying it again does no harm."""
        if visit.is_waiting:
            visit.is_waiting = False
            if self.is_away:
                self._keep_untold(visit.permit)
            else:
                self._tell(self._say_begun(visit.permit, is_late=False))

    def leave(self, visit: Visit) -> None:
        """The request is over; returns at once, and saying it again does no harm."""
        self._untold.pop(visit.permit.token, None)
        if self._inside.pop(visit.permit.token, None) is not None:
            self._give_back(visit.permit)

    # --- inside

    async def _ask(self, ask: Ask) -> Visit | Refusal:
        """One question to the ledger, whose answer is not waited for any longer than chat may be held up."""
        if self.is_away:
            return self._let_in_unasked(ask)
        question = asyncio.create_task(self._ledger.acquire(Kind.INTERACTIVE, ask))
        try:
            await asyncio.wait([question], timeout=ANSWER_SECONDS)
            if not question.done():
                await asyncio.wait([question], timeout=LAST_LOOK_SECONDS)
        except asyncio.CancelledError:
            self._forsake(question)
            raise
        if not question.done():
            self._forsake(question)
            self._lost(f"Redis has not answered for {ANSWER_SECONDS:g} s")
            return self._let_in_unasked(ask)
        try:
            answer = question.result()
        except LedgerUnavailable as error:
            self._lost(str(error).partition(":")[0])
            return self._let_in_unasked(ask)
        return answer if isinstance(answer, Refusal) else self._let_in(answer, is_open=False)

    def _let_in_unasked(self, ask: Ask) -> Visit:
        self.admitted_open += 1
        return self._let_in(Permit(secrets.token_hex(8), Kind.INTERACTIVE, ask), is_open=True)

    def _let_in(self, permit: Permit, *, is_open: bool) -> Visit:
        self._inside[permit.token] = permit
        return Visit(permit, is_open, permit.ask.streamed)

    async def _say_begun(self, permit: Permit, *, is_late: bool) -> None:
        try:
            await self._ledger.first_token(permit, is_late=is_late)
        except LedgerUnavailable:
            self._keep_untold(permit)
            raise

    def _keep_untold(self, permit: Permit) -> None:
        if permit.token in self._inside:
            self._untold[permit.token] = permit

    def _give_back(self, permit: Permit) -> None:
        if self.is_away:
            self._owed.append(permit)
            self._has_left.set()
        else:
            self._tell(self._release(permit))

    async def _release(self, permit: Permit) -> None:
        try:
            await self._ledger.release(permit)
        except LedgerUnavailable:
            self._owed.append(permit)
            raise
        self._has_left.set()  # only now is its room there for who waits

    def _forsake(self, question: "asyncio.Task[Permit | Refusal]") -> None:
        """Nobody waits for this answer any more; whatever it gives is given back."""
        self._keep(question)
        question.add_done_callback(self._give_back_late)

    def _give_back_late(self, question: "asyncio.Task[Permit | Refusal]") -> None:
        if question.cancelled() or question.exception() is not None:
            return
        answer = question.result()
        if isinstance(answer, Permit):
            self._give_back(answer)

    def _tell(self, message: Coroutine[Any, Any, Any]) -> None:
        """Send the ledger something that no request waits for."""
        if self.is_away:
            message.close()
        else:
            self._keep(asyncio.create_task(self._told(message)))

    async def _told(self, message: Coroutine[Any, Any, Any]) -> None:
        try:
            await message
        except LedgerUnavailable as error:
            self._lost(str(error).partition(":")[0])

    def _keep(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _room_or_time(self) -> None:
        try:
            async with asyncio.timeout(ASK_AGAIN_SECONDS):
                await self._has_left.wait()
        except TimeoutError:
            return

    async def _beat_for_ever(self) -> None:
        while True:
            try:
                # Together, so that they go out as one group: what is inside is known again when the beat is heard.
                await asyncio.gather(self._renew(), self._ledger.beat())
            except LedgerUnavailable as error:
                self._lost(str(error).partition(":")[0])
            except Exception:
                log.exception("the door of pool %s did not beat; it goes on", self._ledger.pool)
            else:
                self._found()
            await asyncio.sleep(BEAT_SECONDS)

    async def _renew(self) -> None:
        await self._ledger.renew(list(self._inside.values()), self._inside)

    def _lost(self, why: str) -> None:
        if not self.is_away:
            self.is_away = True
            log.warning("pool %s: %s; chat is let in unasked until it answers", self._ledger.pool, why)

    def _found(self) -> None:
        if not self.is_away:
            return
        self.is_away = False
        log.warning("pool %s: Redis answers again; chat is admitted as before", self._ledger.pool)
        while self._owed:
            self._tell(self._release(self._owed.popleft()))
        untold, self._untold = self._untold, {}
        for permit in untold.values():
            self._tell(self._say_begun(permit, is_late=True))


def _is_full(answer: Visit | Refusal) -> bool:
    return isinstance(answer, Refusal) and answer.reason is not Reason.TOO_LARGE


def chat_pools(settings: Settings) -> list[Pool]:
    """The pools that chat has a share of, in their order. Raises SettingsError when there is none."""
    pools = [pool for pool in settings.pool if not capacity_of(pool).is_dedicated]
    if not pools:
        raise SettingsError("no pool takes chat: in one [[pool]], leave a part of its capacity outside of batch's")
    return pools
