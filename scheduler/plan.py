"""Capacity as numbers: what each pool carries, what a night takes, and how to share. Pure.

Every number is a `Figure` that says where it came from.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from scheduler.capacity import PoolCapacity
from scheduler.curve import Curve
from scheduler.hours import SharedHours
from scheduler.room import RoomModel
from scheduler.speed import PoolSpeed, unshared
from scheduler.usual import ChatLevel, UsualLoad
from tickets_batch.words import counted

# A person chatting, where nobody says otherwise.
MESSAGE_SECONDS = 60.0  # from one message to the next
ANSWER_TOKENS = 200
REQUEST_SECONDS = 10.0  # of a chat request, where no token was timed
NINETEEN_IN_TWENTY = 1.645  # standard deviations over the mean

SHORT_SECONDS = 30.0  # a ticket that takes less shares slots; a longer one holds them for too long
HORIZON = timedelta(days=7)
STRIDE = timedelta(minutes=1)


class Origin(StrEnum):
    """Where a number comes from."""

    MEASURED = "measured"
    STORED = "stored"  # seen while batches were at work
    GIVEN = "given"  # on the command line
    CONFIGURED = "configured"
    ASSUMED = "assumed"
    DEFAULT = "default"  # the built-in engine, where nothing was measured


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its origin, and in words what it rests on."""

    value: float
    origin: Origin
    detail: str


@dataclass(frozen=True, slots=True)
class Basis:
    """The curve by which a pool is planned; `detail` says when it was measured, or what stands in for it."""

    curve: Curve
    origin: Origin
    detail: str


class Chat(StrEnum):
    """With how much chat a night is planned."""

    NONE = "best"  # no chat at all
    USUAL = "usual"  # as it was in the nights before
    FULL = "floor"  # it never rests: batch has its floor


@dataclass(frozen=True, slots=True)
class PlannedPool:
    """One pool with all that is known of it; `cost_per_hour` is in whatever currency.

    `is_blind`: nothing can tell of its chat, so that batch never leaves its floor, whatever the chat does.
    """

    name: str
    model: str
    capacity: PoolCapacity
    ttft_target_seconds: float
    basis: Basis
    hours: SharedHours
    usual: UsualLoad | None = None
    cost_per_hour: float | None = None
    is_blind: bool = False

    @property
    def speed(self) -> PoolSpeed:
        """What it does with what the chat leaves."""
        return PoolSpeed(self.basis.curve, unshared(self.capacity) if self.is_blind else self.capacity)

    @property
    def ticket_seconds(self) -> Figure:
        """How long a ticket takes with as many in flight as batch may ever have."""
        slots = self.speed.full_slots
        return self._figure(self.basis.curve.ticket_seconds(slots), f"with {slots:.0f} in flight")

    @property
    def tickets_per_hour_at_floor(self) -> Figure:
        """What batch does while the chat never rests."""
        slots = self.speed.floor_slots
        beside = "" if self.capacity.is_dedicated else f" beside {self.capacity.total.slots - slots:.0f} of the chat"
        return self._figure(3600 * self.speed.floor, f"{slots:.0f} in flight{beside}")

    @property
    def tickets_per_hour_at_full(self) -> Figure:
        """What batch does while there is no chat; of a blind pool, what its floor does then."""
        alone = "" if self.capacity.is_dedicated else ", no chat"
        return self._figure(3600 * self.speed.full, f"{self.speed.full_slots:.0f} in flight{alone}")

    @property
    def peak_chat_requests(self) -> Figure | None:
        """How many chat requests it carries at a time with their first token in time, beside batch's floor.

        None on a pool of batch's own. Zero: not one beside the floor.
        """
        if self.capacity.is_dedicated:
            return None
        most, curve = self.capacity.most_interactive.slots, self.basis.curve
        if not curve.is_probed:
            return Figure(most, Origin.CONFIGURED, "all slots but batch's floor; what they wait was not measured")
        within = curve.most_within(self.ttft_target_seconds)
        in_time = within.in_flight - self.capacity.floor.slots if within else 0
        target = f"{self.ttft_target_seconds:g} s"
        if in_time >= most:
            return self._figure(most, f"all slots but batch's floor, each with its first token within {target}")
        return self._figure(max(0, in_time), f"with more the first token took longer than {target}")

    @property
    def chat_request_seconds(self) -> Figure:
        """How long a chat request is in flight at that peak."""
        step = self.basis.curve.most_within(self.ttft_target_seconds) or self.basis.curve.steps[0]
        if step.token_seconds is None or step.probe_ttft_seconds_p50 is None:
            return Figure(REQUEST_SECONDS, Origin.ASSUMED, f"{REQUEST_SECONDS:g} s an answer")
        seconds = step.probe_ttft_seconds_p50 + ANSWER_TOKENS * step.token_seconds
        return Figure(seconds, Origin.ASSUMED, f"{ANSWER_TOKENS} tokens an answer, {seconds:.1f} s at this speed")

    @property
    def people_chatting(self) -> Figure | None:
        """How many people may chat at once: requests that come as they please stay within the peak 19 times in 20."""
        peak = self.peak_chat_requests
        if peak is None:
            return None
        root = (math.sqrt(NINETEEN_IN_TWENTY**2 + 4 * peak.value) - NINETEEN_IN_TWENTY) / 2  # m + z sqrt(m) = peak
        request = self.chat_request_seconds
        detail = f"a message each {MESSAGE_SECONDS:g} s, {request.detail}"
        return Figure(math.floor(root**2 * MESSAGE_SECONDS / request.value), Origin.ASSUMED, detail)

    def tickets_per_second(self, chat: Chat, at: datetime) -> float:
        """What batch does at an instant, with that much chat and by the pool's hours."""
        speed = self.speed
        if self.capacity.is_dedicated:
            return speed.full
        usual = self.usual_chat(at)
        if chat is Chat.FULL:
            return speed.floor
        if not self.hours.is_open(at):
            return speed.in_room(speed.floor_slots, usual.slots if chat is Chat.USUAL else 0.0)
        if chat is Chat.NONE:
            return speed.full
        room = RoomModel(self.capacity, self.usual).usual(at)
        if room is None:  # nothing is stored of this hour
            room = self.capacity.total.slots - usual.slots - 1
        return speed.in_room(room, usual.slots)

    def usual_chat(self, at: datetime) -> ChatLevel:
        """The mean at that time of day; where nothing is stored of it, that of the busiest half hour."""
        if self.usual is None or not self.usual.bins:
            return ChatLevel(0.0, 0.0)
        return self.usual.at(at) or max(self.usual.bins.values(), key=lambda level: level.slots)

    def cost_per_ticket(self) -> Iterator[tuple[int, float]]:
        """For each number in flight that the curve has: the whole pool's hour over the tickets done in it."""
        if self.cost_per_hour is not None:
            for step in self.basis.curve.steps:
                yield step.in_flight, self.cost_per_hour / (3600 * step.tickets_per_second)

    def _figure(self, value: float, words: str) -> Figure:
        return Figure(value, self.basis.origin, words)


@dataclass(frozen=True, slots=True)
class Night:
    """So many tickets from an instant on, to be done by another, on all the pools together."""

    pools: Sequence[PlannedPool]
    tickets: int
    starts_at: datetime
    deadline_at: datetime | None

    @property
    def knows_chat(self) -> bool:
        """Whether something is stored of the chat of every pool that has some."""
        return all(pool.capacity.is_dedicated or (pool.usual and pool.usual.bins) for pool in self.pools)

    def finish(self, chat: Chat) -> datetime | None:
        """When the last ticket is done; None: not within a week."""
        return self._moved(chat, self.starts_at, STRIDE)

    def latest_start(self, chat: Chat) -> datetime | None:
        """The latest instant at which it may begin and be done in time; None without a deadline, or over a week."""
        return None if self.deadline_at is None else self._moved(chat, self.deadline_at, -STRIDE)

    def tickets_per_second(self, chat: Chat, at: datetime) -> float:
        """Of all pools together."""
        return sum(pool.tickets_per_second(chat, at) for pool in self.pools)

    def _moved(self, chat: Chat, since: datetime, stride: timedelta) -> datetime | None:
        """From an instant on (or back) until all tickets are done."""
        left, at = float(self.tickets), since
        while left > 0:
            if abs(at - since) > HORIZON:
                return None
            rate = self.tickets_per_second(chat, at + stride / 2)
            seconds = abs(stride.total_seconds())
            if rate * seconds >= left:
                return at + stride * (left / rate / seconds)
            left -= rate * seconds
            at += stride
        return at


class Way(StrEnum):
    """How tickets and chat best share."""

    SLOTS = "slots"
    HOURS = "hours"
    TWO_POOLS = "two pools"
    DEDICATED = "nothing"  # it is batch's own already


@dataclass(frozen=True, slots=True)
class Advice:
    """The way that suits, why, and what sizes in settings' words; `sizes` is empty without a deadline."""

    way: Way
    why: str
    sizes: str


def advise(pool: PlannedPool, night: Night | None) -> Advice:
    """For one pool, as if it had the night's tickets alone; for a blind one, as if its chat could be seen."""
    if pool.is_blind:
        seen = advise(replace(pool, is_blind=False), night)
        return replace(seen, why=f"once a [[pool.signal]] tells of the chat: {seen.why}")
    seconds = pool.ticket_seconds.value
    alone = Night((pool,), night.tickets, night.starts_at, night.deadline_at) if night else None
    left = _seconds_left(alone)
    takes = f"a ticket takes {seconds:.1f} s at the full limit"
    if pool.capacity.is_dedicated:
        return Advice(Way.DEDICATED, "all of it is batch's own", _own_pool(pool, alone, left))
    if alone is not None and left is not None and pool.speed.full * left < alone.tickets:
        why = "not even the full limit without any chat does these tickets in time"
        return Advice(Way.TWO_POOLS, why, _own_pool(pool, alone, left))
    if seconds < SHORT_SECONDS:
        why = f"{takes}: a slot that the chat needs is soon free"
        return Advice(Way.SLOTS, why, _floor_for(pool, alone, left))
    why = f"{takes}: it would hold a slot that the chat needs for too long"
    return Advice(Way.HOURS, why, _hours_for(pool, alone))


def _seconds_left(night: Night | None) -> float | None:
    if night is None or night.deadline_at is None:
        return None
    return max(0.0, (night.deadline_at - night.starts_at).total_seconds())


def _floor_for(pool: PlannedPool, night: Night | None, left: float | None) -> str:
    if night is None or not left:
        return ""
    total = pool.capacity.total.slots
    for slots in range(1, total):
        if pool.speed.beside(slots, total - slots) * left >= night.tickets:
            return f"with a floor of {counted(slots, 'slot')} of {total} it is done in time whatever the chat does"
    return (
        f"no floor of its {counted(total, 'slot')} is enough whatever the chat does: that takes a pool of batch's own"
    )


def _hours_for(pool: PlannedPool, night: Night | None) -> str:
    starts_at = night.latest_start(Chat.NONE) if night else None
    if night is None or starts_at is None or night.deadline_at is None:
        return ""
    zone = pool.hours.zone
    local = starts_at.astimezone(zone)
    begins = local.replace(minute=local.minute // 15 * 15)
    return f'shared_hours = ["{begins:%H:%M}-{night.deadline_at.astimezone(zone):%H:%M}"] at least'


def _own_pool(pool: PlannedPool, night: Night | None, left: float | None) -> str:
    """The smallest number of slots, or of engines like this one at the knee, that is done in time."""
    if night is None or not left:
        return ""
    knee, curve = pool.basis.curve.knee.in_flight, pool.basis.curve
    needed = night.tickets / left
    slots = next((slots for slots in range(1, knee + 1) if curve.tickets_per_second(slots) >= needed), None)
    if slots is not None:
        return f"{counted(slots, 'slot')} of batch's own {'suffices' if slots == 1 else 'suffice'}"
    engines = math.ceil(needed / curve.tickets_per_second(knee))
    return f"that takes {counted(engines, 'engine')} like this one of batch's own, {counted(knee, 'slot')} each"
