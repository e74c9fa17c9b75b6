"""One measurement of a pool, from the first ticket to the curve."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from jobs.outcomes import Attempt
from scheduler.capacity import PoolCapacity
from scheduler.curve import Curve, Step
from scheduler.ledger import Ledger
from scheduler.pools import capacity_of
from scheduler.signals.fetch import SignalUnavailable
from scheduler.signals.probe import LONGEST_SECONDS, Probe
from tickets_batch.errors import UserError
from tickets_batch.settings import Pool
from workers.client import ModelClient
from workers.measure.climb import OVER_SLOTS, next_in_flight
from workers.measure.figures import Held, curve_of, in_words, relative_error, step_of
from workers.measure.load import TicketLoad
from workers.measure.ours import Ours
from workers.measure.texts import Texts
from workers.measure.watch import ChatWatch

TICK_SECONDS = 0.05
STEADY = 0.05  # the standard error of the mean ticket's seconds, over that mean
NO_ROOM, NO_ROOM_SHARE = 4, 0.05  # requests that come to nothing: over both, and a step is given up before its end
ROUNDS = 3  # tickets of each lane that a step takes in at least
PROBE_PAUSES_SECONDS = (0.1, 0.4)
MOST_RETREATS = 10


class Unmeasurable(UserError):
    """The pool cannot be measured now; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long things may take, in seconds, and how much is enough.

    A step lasts at least `step_seconds` and ends when it is steady, or after `most_step_seconds` and four tickets' time
    whatever it is, but never later than `endless_seconds`. The probe asks up to `probes` times at each step, within
    `probe_seconds`. After chat was seen it must be quiet for `quiet_seconds`; all waiting for that together is bounded
    by `patience_seconds`.
    """

    step_seconds: float = 4.0
    most_step_seconds: float = 30.0
    endless_seconds: float = 600.0
    tickets: int = 16
    probes: int = 12
    probe_seconds: float = 15.0
    quiet_seconds: float = 5.0
    patience_seconds: float = 300.0


class _NoRoom(Exception):
    """The engine does not serve so many at a time."""


class Measurement:
    """Measures one pool; `run` once. `say` is told one line for each step and for whatever happens.

    Holds no permits: it stops at once when anybody else is on the pool, which `ledger` and the engines' metrics tell.
    """

    def __init__(
        self,
        pool: Pool,
        texts: Texts,
        *,
        ledger: Ledger | None,
        say: Callable[[str], None],
        bounds: Bounds | None = None,
        is_watched: bool = True,
        seed: int = 0,
    ) -> None:
        self._pool = pool
        self._texts = texts
        self._capacity: PoolCapacity = capacity_of(pool)
        self._say = say
        self._bounds = bounds or Bounds()
        self._is_watched = is_watched
        self._random = random.Random(seed)  # noqa: S311 - pauses, not secrets
        self._patience = self._bounds.patience_seconds
        self._ours = Ours()
        self._watch = ChatWatch(pool, ledger, self._ours)
        self._probe = Probe(pool)
        self._client = ModelClient(pool, at_once=OVER_SLOTS * self._capacity.total.slots)
        self._load = TicketLoad(self._client, texts, self._ours)
        self._refused_at: int | None = None

    async def run(self) -> Curve:
        """Measure until more tickets at a time are of no use. Raises Unmeasurable, and leaves nothing in flight."""
        try:
            await self._watch.open()
            self._require_sight()
            await self._wait_for_quiet("")
            return await self._climb()
        finally:
            await self._load.withdraw()
            await self._client.aclose()
            await self._probe.aclose()
            await self._watch.aclose()

    def _require_sight(self) -> None:
        if self._is_watched and self._watch.is_blind:
            raise Unmeasurable(
                f"nothing tells of the chat of pool {self._pool.name} ({self._watch.why_not or 'no gateway beats'}): "
                "add a [[pool.signal]] that answers, or --unwatched when nobody can be there"
            )

    async def _climb(self) -> Curve:
        held: dict[int, Held] = {}
        target = None if self._capacity.is_dedicated else self._pool.ttft_target_seconds
        slots = self._capacity.total.slots
        while True:
            steps = [held[number].step for number in sorted(held)]
            number = next_in_flight(steps, slots, target, self._refused_at)
            if number is None:
                break
            try:
                held[number] = await self._undisturbed(number, steps)
            except _NoRoom as error:
                self._refused_at = number
                self._say(f"{number} in flight: {error}; no more than {number - 1} from here on")
        if not held:
            raise Unmeasurable(f"pool {self._pool.name} does not serve even one ticket at a time: see its server's log")
        return curve_of([held[number] for number in sorted(held)], self._texts)

    async def _undisturbed(self, number: int, before: Sequence[Step]) -> Held:
        """One step without anybody else: begun anew as often as somebody comes."""
        for _ in range(MOST_RETREATS):
            held = asyncio.create_task(self._hold(number, before))
            busy = asyncio.create_task(self._watch.until_busy())
            try:
                await asyncio.wait({held} if not self._is_watched else {held, busy}, return_when="FIRST_COMPLETED")
                if held.done():
                    return held.result()
                await self._load.withdraw()
            finally:
                for task in (held, busy):
                    task.cancel()
                await asyncio.gather(held, busy, return_exceptions=True)
            await self._wait_for_quiet(busy.result())
        raise Unmeasurable(f"pool {self._pool.name} was never quiet for long: measure at a quieter hour")

    async def _wait_for_quiet(self, busy: str) -> None:
        if not self._is_watched:
            return
        if busy:
            self._say(f"{busy}: all withdrawn, waiting for at most {self._patience:.0f} s for quiet")
        began = time.monotonic()
        is_quiet = await self._watch.is_quiet(self._bounds.quiet_seconds if busy else 1.0, self._patience)
        self._patience -= time.monotonic() - began
        if not is_quiet:
            raise Unmeasurable(
                f"{self._watch.busy or busy or self._watch.why_not}, and no quiet came within "
                f"{self._bounds.patience_seconds:.0f} s in all: nothing is stored, measure at a quieter hour"
            )
        if busy:
            self._say("quiet again: going on")

    async def _hold(self, number: int, before: Sequence[Step]) -> Held:
        """Have so many in flight until the figures are steady, then probe beside them."""
        bounds, load = self._bounds, self._load
        last = before[-1] if before else None
        load.clear()
        load.set(number, last.ticket_seconds_p50 if last else 0.0)
        await self._until(lambda: len(load.answered) >= 2 * number, bounds.most_step_seconds, number)  # has settled
        load.clear()
        began = time.monotonic()
        await self._until(lambda: self._is_steady(began, number), bounds.most_step_seconds, number)
        ended = time.monotonic()
        self._require_room(2)
        # Who began before has seen the load rise.
        answered = [one for one in load.answered if one.began >= began] or list(load.answered)
        is_steady = relative_error(answered) <= STEADY
        waited = await self._probed(number)
        step = step_of(number, ended - began, answered, waited, is_steady)
        self._say(in_words(step))
        return Held(step, answered)

    def _is_steady(self, began: float, number: int) -> bool:
        answered = [one for one in self._load.answered if one.began >= began]
        enough = len(answered) >= max(self._bounds.tickets, ROUNDS * number)
        lasted = time.monotonic() - began >= self._bounds.step_seconds
        return enough and lasted and relative_error(answered) <= STEADY

    async def _until(self, condition: Callable[[], bool], most_seconds: float, number: int) -> None:
        """Until it holds, or the time is up and something was answered. Raises _NoRoom, Unmeasurable."""
        load, began = self._load, time.monotonic()
        while not condition():
            self._require_answers(number)
            took = [one.seconds for one in load.answered]
            lasted = time.monotonic() - began
            if took and lasted >= max(most_seconds, 4 * fmean(took)):
                return
            if lasted >= self._bounds.endless_seconds:
                if took:
                    return
                raise Unmeasurable(
                    f"pool {self._pool.name} answered nothing in {lasted:.0f} s with {number} in flight: "
                    "see its server's log"
                )
            await asyncio.sleep(TICK_SECONDS)

    def _require_answers(self, number: int) -> None:
        load = self._load
        if load.hopeless is not None:
            raise Unmeasurable(f"{self._pool.base_url}: {_why(load.hopeless)}: tickets-batch doctor tries it")
        if load.unusable is not None and not load.answered:
            raise Unmeasurable(f"{self._pool.base_url} takes no such ticket: {_why(load.unusable)}")
        self._require_room(NO_ROOM)

    def _require_room(self, least: int) -> None:
        """Raises _NoRoom when at least so many requests came to nothing, and too large a share of them."""
        failed, answered = self._load.no_room, len(self._load.answered)
        if len(failed) >= least and len(failed) > NO_ROOM_SHARE * (len(failed) + answered):
            raise _NoRoom(f"the engine does not serve so many ({_why(failed[-1])})")

    async def _probed(self, number: int) -> list[float]:
        """What small requests waited for their first token, one after the other beside the load."""
        waited: list[float] = []
        began = time.monotonic()
        while len(waited) < self._bounds.probes and time.monotonic() - began < self._bounds.probe_seconds:
            await asyncio.sleep(self._random.uniform(*PROBE_PAUSES_SECONDS))
            asked = time.monotonic()
            try:
                with self._ours.one():
                    waited.append(await self._probe.ask())
            except SignalUnavailable as error:
                if time.monotonic() - asked < LONGEST_SECONDS:
                    self._say(f"{number} in flight: {error}")
                    break
                waited.append(LONGEST_SECONDS)  # at least so long
        return waited


def _why(attempt: Attempt) -> str:
    status = f" (HTTP {attempt.http_status})" if attempt.http_status else ""
    return f"{attempt.symptom}{status}: {attempt.detail}"
