"""One pool at one moment, for those who read it: what batch may hold, by which rule, and on what reading."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from scheduler.capacity import Amount, PoolCapacity
from scheduler.headroom import headroom
from scheduler.hours import SharedHours
from scheduler.limit import Rule
from scheduler.note import Note
from scheduler.permit import Kind, PublishedLimit
from scheduler.snapshot import Snapshot
from tickets_batch.words import counted

YOUNG_SECONDS = 3.0  # a limit's time to live: a younger one that is not in force waits for the ledger to settle
REMEDY = "start the gateway, or add a [[pool.signal]] that answers: tickets-batch doctor tries them"
NO_READING = "no reading yet"
PAUSED = "paused"
WORDS: dict[str, str] = {
    Rule.DEDICATED: "all of the pool is batch's own",
    Rule.BLIND: f"blind: no source tells of the chat, so the floor holds; {REMEDY}",
    Rule.CLOSED: "outside the pool's shared_hours: the floor holds",
    Rule.HOLDOUT: "this minute is held out, to see what batch costs the chat: the floor holds whatever the load",
    Rule.TTFT: "a chat request waited longer than ttft_target_seconds for its first token: the floor holds",
    Rule.CONGESTION: "requests queue at the engine: the floor holds",
    Rule.MAXIMUM: "all that is shared is free",
}


class Condition(StrEnum):
    """What batch has of a pool now, in one word."""

    DEDICATED = "dedicated"  # all of it, always
    SHARED = "shared"  # what the chat leaves
    FLOOR = "floor"  # pulled back to its floor
    CLOSED = "closed"  # its floor, outside the shared hours
    BLIND = "blind"  # its floor: nothing tells of the chat
    STALE = "stale"  # its floor: no limit is in force


@dataclass(frozen=True, slots=True)
class Source:
    """A source of what is known of the chat; `age_seconds` is None where it has never answered."""

    name: str
    age_seconds: float | None
    is_fresh: bool


@dataclass(frozen=True, slots=True)
class PoolReading:
    """What the ledger of a pool says at the instant `at`, with what is configured of it."""

    name: str
    capacity: PoolCapacity
    hours: SharedHours
    snapshot: Snapshot
    note: Note | None
    at: datetime

    @classmethod
    def of(
        cls, name: str, capacity: PoolCapacity, hours: SharedHours, snapshot: Snapshot, at: datetime
    ) -> "PoolReading":
        """The reading with the scheduler's note, if it left one."""
        return cls(name, capacity, hours, snapshot, Note.read(snapshot.note), at)

    @property
    def chat(self) -> Amount:
        """What chat holds: by the ledger's count or as seen at the engine, whichever is larger."""
        own = self.snapshot.interactive
        return own.at_least(self.snapshot.observed) if self.snapshot.observed_is_fresh else own

    @property
    def condition(self) -> Condition:
        """What batch has of the pool now."""
        if self.capacity.is_dedicated:
            return Condition.DEDICATED
        if not self.snapshot.limit_is_published:
            return Condition.STALE
        if self.note is not None and self.note.load.is_blind:
            return Condition.BLIND
        if not self.hours.is_open(self.at):
            return Condition.CLOSED
        limit, floor = self.snapshot.limit, self.capacity.floor
        return Condition.FLOOR if limit.slots <= floor.slots or limit.tokens <= floor.tokens else Condition.SHARED

    @property
    def awaits_first(self) -> bool:
        """Whether nothing has been heard yet: not of a limit, or not from any of the sources that there are."""
        if self.snapshot.paused_seconds:
            return False  # the engine has been heard, and asked for rest
        if self.note is None:
            return self.condition is Condition.STALE
        sources = self.note.load.sources
        never = bool(sources) and all(source.age_seconds is None for source in sources)
        return self.condition is Condition.BLIND and never

    @property
    def published_at(self) -> datetime | None:
        """When the scheduler last published a limit, None where it has left no word of it."""
        return None if self.note is None else datetime.fromtimestamp(self.note.at, UTC)

    @property
    def sources(self) -> tuple[Source, ...]:
        """What tells of the chat, each with its age now; without a limit in force none of it counts as fresh."""
        if self.note is None:
            return ()
        since = self._note_age_seconds
        return tuple(
            Source(
                one.name,
                None if one.age_seconds is None else one.age_seconds + since,
                one.is_fresh and self.snapshot.limit_is_published,
            )
            for one in self.note.load.sources
        )

    @property
    def ttfts_seconds(self) -> tuple[float, ...]:
        """How long the last chat requests waited for their first token, newest first."""
        return tuple(first.seconds for first in self.snapshot.recent if first.kind is Kind.INTERACTIVE)

    @property
    def limit(self) -> Amount:
        """The most batch may hold now, for tickets like those in flight: as published, or the headroom if less."""
        snapshot = self.snapshot
        published = PublishedLimit(snapshot.limit, snapshot.prefill_limit_tokens, snapshot.outlook)
        return headroom(self.capacity, published, self.chat, snapshot.batch.slots, snapshot.batch_expected_seconds)

    @property
    def rule(self) -> str:
        """The rule of the limit, in a word: of a pool that is not shared now, at rest or not, its condition."""
        if self.condition not in (Condition.SHARED, Condition.FLOOR):
            return self.condition.value
        if self.snapshot.paused_seconds:
            return PAUSED
        if self.limit != self.snapshot.limit:
            return Rule.HEADROOM.value
        return self.note.rule if self.note is not None else self.condition.value

    @property
    def binding(self) -> str:
        """What binds, in a word: a pool at rest admits nothing of batch, whatever its condition and its limit."""
        return PAUSED if self.snapshot.paused_seconds else self.rule

    @property
    def rule_in_words(self) -> str:
        """What binds, in a word or two for a person."""
        return NO_READING if self.awaits_first else self.binding

    @property
    def reason(self) -> str:
        """The rule that binds, in a sentence."""
        if self.awaits_first:
            return f"{NO_READING}, so the floor holds" + ("" if self.note is None else f"; if none comes, {REMEDY}")
        if self.snapshot.paused_seconds:
            return f"the engine asked for rest, {self.snapshot.paused_seconds:.0f} s to go"
        match self.rule:
            case Condition.STALE:
                return f"{self._why_stale}: the floor holds"
            case Rule.HEADROOM:
                total, chat, limit = self.capacity.total, self.chat, self.limit
                kept = Amount(max(0, total.slots - chat.slots - limit.slots), total.tokens - chat.tokens - limit.tokens)
                if limit.slots < self.snapshot.limit.slots:
                    return (
                        f"headroom: chat holds {chat.slots} of {counted(total.slots, 'slot')}; kept for it: "
                        f"{kept.slots} more"
                    )
                return (
                    f"headroom: chat holds {chat.tokens:,} of {total.tokens:,} tokens; {kept.tokens:,} are kept for it"
                )
            case Rule.DEDICATED | Rule.BLIND | Rule.CLOSED as rule:
                return WORDS[rule]
            case rule:
                return (self.note.why if self.note is not None else "") or WORDS.get(rule, rule)

    @property
    def _note_age_seconds(self) -> float:
        return 0.0 if self.note is None else max(0.0, self.at.timestamp() - self.note.at)

    @property
    def _why_stale(self) -> str:
        if self._note_age_seconds < YOUNG_SECONDS:
            return "the ledger has begun anew, and earlier permits may still be out"
        return f"no fresh limit for {self._note_age_seconds:,.0f} s"


def quantile(values: Iterable[float], share: float) -> float | None:
    """The least of the values that `share` of them do not exceed (nearest rank); None of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None
