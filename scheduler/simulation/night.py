"""A whole night of one batch on one pool: from its start until the last ticket is done or the deadline has passed."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from scheduler.capacity import NOTHING, Amount
from scheduler.holdout import is_held_out
from scheduler.hours import SharedHours
from scheduler.limit import Decision
from scheduler.load_meter import MeanLoad
from scheduler.permit import Kind
from scheduler.pool_reading import quantile
from scheduler.simulation.admission import Admission
from scheduler.simulation.shapes import Arrival
from scheduler.simulation.site import Site
from scheduler.simulation.tickets import Ticket, TicketQueue
from scheduler.simulation.world import Tally, World

ROW_SECONDS = 10.0
GRACE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Night:
    """What is played. `chat` is in order, in seconds from `starts_at`; the instants are aware.

    At the deadline nothing more is admitted, and what is in flight is withdrawn `grace_seconds` later. Without one the
    night lasts until the last ticket is done. The same `seed` gives the same night. `holdout` is the share of the
    minutes that are held out.
    """

    site: Site
    hours: SharedHours
    tickets: Sequence[Ticket]
    chat: Sequence[Arrival]
    starts_at: datetime
    deadline_at: datetime | None = None
    grace_seconds: float = GRACE_SECONDS
    seed: int = 1
    priority: int = 0
    holdout: float = 0.0

    def __post_init__(self) -> None:
        if self.starts_at.tzinfo is None or (self.deadline_at is not None and self.deadline_at.tzinfo is None):
            raise ValueError("the instants of a night must be aware")
        if self.deadline_at is not None and self.deadline_at <= self.starts_at:
            raise ValueError("a night ends after it starts")

    @property
    def deadline_seconds(self) -> float:
        """From the start to the deadline; infinite without one."""
        if self.deadline_at is None:
            return math.inf
        return (self.deadline_at.astimezone(UTC) - self.starts_at.astimezone(UTC)).total_seconds()


@dataclass(frozen=True, slots=True)
class Row:
    """One stretch of the night, of `seconds`, that ended at the instant `at`.

    `limit`, `held` and `chat` are means over it, read twice a second: what batch might hold with tickets like those in
    flight, what it held, and what chat held. As of `at`: the rule that binds, whether the limit is the floor, the chat
    requests without a first token, and the tickets and tokens of the batch still to do. In the stretch: what came, was
    refused or withdrawn, the p95 of the chat's times to a first token (None where there were none), and what the
    tickets that ended in it came to.
    """

    at: datetime
    seconds: float
    limit: Amount
    held: Amount
    chat: Amount
    is_at_floor: bool
    rule: str
    waiting: int
    arrivals: int
    refused: int
    withdrawn: int
    ttft_seconds: float | None
    tickets: int
    tokens: int
    tickets_left: int
    tokens_left: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a night came to. `finished_at` is None where the deadline came first, with `tickets_left` still to do.

    The chat's times to a first token are in seconds, None where there was no chat; `late` of its requests got theirs
    after the target. `rule_seconds` is for how long each rule bound. `withdrawn` requests came back from the engine
    unfinished, `yielded` of them to be done later; `wasted_tokens` is what the engine had computed of them.
    """

    rows: tuple[Row, ...]
    ended_at: datetime
    finished_at: datetime | None
    tickets: int
    tickets_left: int
    too_large: int
    tokens: int
    chat: int
    ttft_p50_seconds: float | None
    ttft_p95_seconds: float | None
    ttft_p99_seconds: float | None
    late: int
    refused: int
    floor_seconds: float
    rule_seconds: Mapping[str, float]
    withdrawn: int
    yielded: int
    wasted_tokens: int


def play(night: Night, on_row: Callable[[Row], None] | None = None) -> Outcome:
    """Play the night through; `on_row` is called with each row of ROW_SECONDS as its time comes, the last is shorter.

    Raises ValueError where the engine would refuse a request that the pool's capacity lets in.
    """
    shift = _Shift(night, on_row)
    return shift.outcome(World(night.site, night.chat, TicketQueue(night.tickets), shift, math.inf).run())


class _Counts(NamedTuple):
    """What had happened at the end of a row."""

    at: float = 0.0
    arrivals: int = 0
    refused: int = 0
    withdrawn: int = 0
    first_tokens: int = 0
    tickets: int = 0
    tokens: int = 0


class _Shift(Admission):
    """Admission from the start to the deadline, with a row of what it came to every ten seconds."""

    def __init__(self, night: Night, on_row: Callable[[Row], None] | None) -> None:
        super().__init__(night.priority, night.seed)
        self._night = night
        self._starts_at = night.starts_at.astimezone(UTC)  # in a zone, time would be added on its clock's face
        self._deadline_seconds = night.deadline_seconds
        self._on_row = on_row
        self._rows: list[Row] = []
        self._tokens = sum(ticket.tokens for ticket in night.tickets)
        self._is_open, self._hours_change_at = True, -math.inf
        self._decision: Decision | None = None
        self._decided_at = 0.0
        self._rule_seconds: defaultdict[str, float] = defaultdict(float)
        self._floor_seconds = 0.0
        self._withdrawn_in_time: int | None = None
        self._before = _Counts()
        self._mean = MeanLoad(NOTHING, NOTHING, NOTHING)
        self._read: list[tuple[Amount, Amount, Amount]] = []  # since the last row: chat, held and limit

    def begin(self, world: World) -> None:
        super().begin(world)
        world.call_at(ROW_SECONDS, self._next_row)
        if self._night.deadline_at is not None:
            world.call_at(self._deadline_seconds, self._close_door)

    def pump(self) -> None:
        if self.world.now < self._deadline_seconds:
            super().pump()
        elif not self.world.flights:
            self.world.end()

    def is_open(self) -> bool:
        if self.world.now >= self._hours_change_at:
            hours, now = self._night.hours, self._instant()
            change_at = hours.next_change(now)
            self._is_open = hours.is_open(now)
            self._hours_change_at = math.inf if change_at is None else (change_at - self._starts_at).total_seconds()
        return self._is_open

    def is_held_out(self) -> bool:
        return is_held_out(self._night.site.name, self._instant(), self._night.holdout)

    def decided(self, decision: Decision) -> None:
        self._account()
        self._decision = decision
        held = self.book.held(Kind.BATCH) + self.book.reclaiming()
        self._read.append((self.book.held(Kind.INTERACTIVE), held, decision.room))

    def night_ended(self) -> None:
        self._account()
        if self.world.now > self._before.at:
            self._make_row()

    def outcome(self, tally: Tally) -> Outcome:
        """What the night came to, once it has been played."""
        night, ended_at = self._night, self._instant(self.world.seconds)
        left = len(night.tickets) - tally.tickets - tally.too_large
        ttfts = tally.ttfts_seconds
        return Outcome(
            rows=tuple(self._rows),
            ended_at=ended_at,
            finished_at=None if left else ended_at,
            tickets=tally.tickets,
            tickets_left=left,
            too_large=tally.too_large,
            tokens=tally.ticket_tokens,
            chat=len(ttfts) + tally.refused,
            ttft_p50_seconds=quantile(ttfts, 0.50),
            ttft_p95_seconds=quantile(ttfts, 0.95),
            ttft_p99_seconds=quantile(ttfts, 0.99),
            late=sum(seconds > night.site.ttft_target_seconds for seconds in ttfts),
            refused=tally.refused,
            floor_seconds=self._floor_seconds,
            rule_seconds=dict(self._rule_seconds),
            withdrawn=tally.withdrawn,
            yielded=tally.withdrawn if self._withdrawn_in_time is None else self._withdrawn_in_time,
            wasted_tokens=tally.wasted_tokens,
        )

    def _close_door(self) -> None:
        """The deadline: nothing starts any more, and what comes back from now on has expired."""
        self._withdrawn_in_time = self.world.tally.withdrawn
        self.world.call_at(self.world.now + self._night.grace_seconds, self._expire)

    def _expire(self) -> None:
        """The grace is over: what is in flight is withdrawn for good."""
        self._close([flight.id for flight in self.world.flights.values()], self.world.now)

    # --- the record

    def _next_row(self) -> None:
        if self.world.now < self.world.seconds:
            self._make_row()
            self.world.call_at(self.world.now + ROW_SECONDS, self._next_row)

    def _make_row(self) -> None:
        decision, before, tally = self._decision, self._before, self.world.tally
        assert decision is not None  # the first decision is made at the start
        if self._read:
            self._mean, self._read = MeanLoad.of(self._read), []
        now = self._before = _Counts(
            self.world.now,
            self.book.arrivals,
            tally.refused,
            tally.withdrawn,
            len(tally.ttfts_seconds),
            tally.tickets,
            tally.ticket_tokens,
        )
        row = Row(
            at=self._instant(),
            seconds=now.at - before.at,
            limit=self._mean.limit,
            held=self._mean.held,
            chat=self._mean.chat,
            is_at_floor=self._is_at_floor(decision),
            rule=decision.rule,
            waiting=len(self.book.waiting()),
            arrivals=now.arrivals - before.arrivals,
            refused=now.refused - before.refused,
            withdrawn=now.withdrawn - before.withdrawn,
            ttft_seconds=quantile(tally.ttfts_seconds[before.first_tokens :], 0.95),
            tickets=now.tickets - before.tickets,
            tokens=now.tokens - before.tokens,
            tickets_left=len(self._night.tickets) - now.tickets - tally.too_large,
            tokens_left=self._tokens - now.tokens - tally.too_large_tokens,
        )
        self._rows.append(row)
        if self._on_row is not None:
            self._on_row(row)

    def _account(self) -> None:
        """Book the time since the last decision under its rule."""
        if self._decision is not None:
            seconds = self.world.now - self._decided_at
            self._rule_seconds[self._decision.rule.value] += seconds
            self._floor_seconds += seconds * self._is_at_floor(self._decision)
        self._decided_at = self.world.now

    def _is_at_floor(self, decision: Decision) -> bool:
        capacity, room = self._night.site.capacity, decision.room
        is_down = room.slots <= capacity.floor.slots or room.tokens <= capacity.floor.tokens
        return is_down and not capacity.is_dedicated

    def _instant(self, at: float | None = None) -> datetime:
        return self._starts_at + timedelta(seconds=self.world.now if at is None else at)
