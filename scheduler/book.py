"""The rules of admission, pure: who may hold how much of a pool, and what is asked back.

`Book` is the whole ledger in memory with the clock as an argument. `scheduler/lua` is the same rule for Redis; a
property test drives both with the same histories. The simulator admits with `Book` itself.
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from scheduler import pull_back
from scheduler.capacity import NOTHING, Amount, PoolCapacity
from scheduler.headroom import headroom
from scheduler.permit import Ask, Kind, Permit, PublishedLimit, Reason, Refusal, Standing
from scheduler.snapshot import FirstToken, Snapshot

FLOOR_HOLD_MS = 1000  # so long the chat's first tokens, or its own prompts, may keep batch even from its floor
RECENT = 256  # first tokens that are remembered
LONGEST_MS = 600_000  # no limit, load or pause is announced for longer


@dataclass(slots=True)
class _Entry:
    kind: Kind
    tokens: int
    prompt_tokens: int
    order: int
    expected_ms: int
    at_ms: int
    expires_at_ms: int
    has_first_token: bool
    is_reclaiming: bool = False  # revoked or draining: counted, but no longer batch's to hold
    is_revoked: bool = False

    @property
    def amount(self) -> Amount:
        return Amount(1, self.tokens)

    def left_ms(self, now_ms: int) -> float:
        """How long it will take yet: what is late by so much may well take as much again."""
        return abs(self.at_ms + self.expected_ms - now_ms) if self.expected_ms else math.inf


@dataclass(slots=True)
class Book:
    """The ledger of one pool in memory. Times are whole milliseconds on any one clock; `epoch` never changes here."""

    capacity: PoolCapacity
    lease_ms: int
    entries: dict[str, _Entry] = field(default_factory=dict)
    published: PublishedLimit | None = None
    published_until_ms: int = 0
    leader_epoch: int = 0
    observed: Amount = NOTHING
    observed_until_ms: int = 0
    paused_until_ms: int = 0
    settled_at_ms: int = 0  # until then batch is at its floor: an earlier ledger may have given permits
    arrivals: int = 0
    refused: int = 0
    revoked: int = 0
    first_tokens: int = 0
    recent: deque[FirstToken] = field(default_factory=lambda: deque(maxlen=RECENT))
    note: str = ""
    beat_at_ms: int | None = None
    _order: int = 0
    # What the entries come to, kept up by `_count`: it is asked far more often than it changes.
    _held: dict[Kind, Amount] = field(default_factory=lambda: dict.fromkeys(Kind, NOTHING))
    _reclaiming: Amount = NOTHING
    _prefill_tokens: int = 0
    _waiting: dict[str, int] = field(default_factory=dict)  # chat without a first token, and when it was admitted
    _expires_at_ms: float = math.inf  # no entry expires before this
    _changes: int = 0
    _waiting_since_ms: int = 0  # when the first of the chat requests now without a first token came
    _batch_at_ms: int = 0  # when batch was last admitted

    # --- reading

    def held(self, kind: Kind) -> Amount:
        """What a class holds, without what is being reclaimed from it."""
        return self._held[kind]

    def reclaiming(self) -> Amount:
        """What batch was asked to give back, or has withdrawn while the engine may still be working on it."""
        return self._reclaiming

    def prefill_tokens(self) -> int:
        """Prompt tokens of batch that have no first token yet."""
        return self._prefill_tokens

    def waiting(self) -> list[int]:
        """When each chat request that has no first token yet was admitted, in milliseconds."""
        return list(self._waiting.values())

    def interactive_use(self, now_ms: int) -> Amount:
        """Interactive's own count or what was observed at the engine, whichever is larger."""
        own = self.held(Kind.INTERACTIVE)
        return own.at_least(self.observed) if now_ms < self.observed_until_ms else own

    def limit(self, now_ms: int) -> PublishedLimit:
        """The limit in force: the one published, or the floor when there is none or it is stale."""
        floor = self.capacity.floor
        if self.published is None or now_ms >= self.published_until_ms or now_ms < self.settled_at_ms:
            return PublishedLimit(floor, floor.tokens)
        limit = self.published.limit.at_most(self.capacity.most_batch).at_least(floor)
        return PublishedLimit(limit, self.published.prefill_tokens, self.published.outlook)

    def version(self, now_ms: int) -> tuple[int | bool, ...]:
        """Another one after anything by which batch may find room: a refusal for want of it stands while this does."""
        self._expire(now_ms)
        ends = (self.published_until_ms, self.observed_until_ms, self.paused_until_ms, self.settled_at_ms)
        return self._changes, *(now_ms < end for end in ends)

    def snapshot(self, now_ms: int) -> Snapshot:
        """Who holds what now, and the limit in force."""
        self._expire(now_ms)
        in_force, waiting = self.limit(now_ms), self._waiting.values()
        is_published = self.published is not None and self.settled_at_ms <= now_ms < self.published_until_ms
        return Snapshot(
            interactive=self.held(Kind.INTERACTIVE),
            batch=self.held(Kind.BATCH) + self.reclaiming(),
            batch_expected_seconds=self._expected_seconds(),
            reclaiming=self.reclaiming(),
            prefill_tokens=self.prefill_tokens(),
            limit=in_force.limit,
            prefill_limit_tokens=in_force.prefill_tokens,
            limit_is_published=is_published,
            observed=self.observed,
            observed_is_fresh=now_ms < self.observed_until_ms,
            paused_seconds=max(0, self.paused_until_ms - now_ms) / 1000,
            interactive_waiting=len(waiting),
            oldest_waiting_seconds=(now_ms - min((now_ms, *waiting))) / 1000,
            epoch="",
            outlook=in_force.outlook,
            arrivals=self.arrivals,
            refused=self.refused,
            revoked=self.revoked,
            first_tokens=self.first_tokens,
            recent=tuple(self.recent),
            beat_age_seconds=None if self.beat_at_ms is None else (now_ms - self.beat_at_ms) / 1000,
            note=self.note,
        )

    # --- the verbs

    def acquire(self, token: str, kind: Kind, ask: Ask, now_ms: int) -> tuple[Refusal | None, list[str]]:
        """Admit a request or say why not; the second value names the batch permits asked back to make room."""
        self._expire(now_ms)
        if token in self.entries:  # the same ask again, after an answer that was lost on the way
            return None, []
        refusal = self._refuse_batch(ask, now_ms) if kind is Kind.BATCH else self._refuse_interactive(ask)
        if refusal is not None:
            return refusal, self._make_room(now_ms) if refusal.reason is Reason.CAPACITY else []
        self._add(token, kind, ask, now_ms, has_first_token=not ask.streamed)
        if kind is Kind.BATCH:
            self._batch_at_ms = now_ms
            return None, []
        self.arrivals += 1
        return None, self._reclaim(now_ms) + self._clear_the_way(now_ms)

    def first_token(self, token: str, now_ms: int, *, is_late: bool = False) -> Standing:
        """The engine has begun to answer: the prompt is no longer in front of anyone.

        `is_late`: it had begun before, and was not told at once; how long it took is not known.
        """
        self._expire(now_ms)
        entry = self.entries.get(token)
        if entry is not None and not entry.has_first_token:
            self._count(token, entry, -1)
            entry.has_first_token = True
            self._count(token, entry, 1)
            self.first_tokens += 1
            if not is_late:
                self.recent.appendleft(FirstToken(entry.kind, (now_ms - entry.at_ms) / 1000, entry.prompt_tokens))
        return self._standing(token)

    def settle(self, token: str, tokens: int, now_ms: int) -> list[str]:
        """Book the true tokens of a request in place of the estimate."""
        self._expire(now_ms)
        if token not in self.entries:
            return []
        entry = self.entries[token]
        self._count(token, entry, -1)
        entry.tokens = tokens
        self._count(token, entry, 1)
        return self._reclaim(now_ms)

    def renew(self, tokens: Iterable[str], now_ms: int) -> dict[str, Standing]:
        """Extend what still exists by one lease; never bring back what has gone."""
        self._expire(now_ms)
        standings = {token: self._standing(token) for token in tokens}
        for token, standing in standings.items():
            if standing is not Standing.GONE:
                entry = self.entries[token]
                entry.expires_at_ms = max(entry.expires_at_ms, now_ms + self.lease_ms)
        return standings

    def register(self, permit: Permit, now_ms: int) -> Standing:
        """Enter a live holder's permit again after the ledger lost its memory: its request is in flight, so it counts.

        Batch may do so only until the new ledger has settled; later its slot may be another's. When it began is not
        known: nothing waits for its first token.
        """
        self._expire(now_ms)
        may_return = permit.kind is Kind.INTERACTIVE or now_ms < self.settled_at_ms
        if permit.token not in self.entries and may_return:
            self._add(permit.token, permit.kind, permit.ask, now_ms, has_first_token=True)
            self._reclaim(now_ms)
        return self._standing(permit.token)

    def release(self, token: str, now_ms: int) -> None:
        """Give a permit back; an unknown token is no error, its lease has run out."""
        self._expire(now_ms)
        if token in self.entries:
            self._count(token, self.entries.pop(token), -1)

    def drain(self, token: str, drain_ms: int, now_ms: int) -> None:
        """The request was withdrawn, but the engine may still be working on it for `drain_ms`."""
        self._expire(now_ms)
        if token in self.entries:
            entry = self.entries[token]
            self._count(token, entry, -1)
            entry.is_reclaiming = entry.kind is Kind.BATCH
            entry.expires_at_ms = now_ms + drain_ms
            self._count(token, entry, 1)

    def revoke(self, target: Amount, now_ms: int) -> list[str]:
        """Ask back what batch holds over `target`, or over its floor where that is more; drainers may end."""
        self._expire(now_ms)
        spare_ms = pull_back.DRAINER_MS
        return self._revoke(pull_back.victims(self._running(now_ms), target, self.capacity.floor, spare_ms))

    def publish(self, limit: PublishedLimit, ttl_ms: int, leader_epoch: int, now_ms: int, note: str = "") -> bool:
        """Put a limit in force for `ttl_ms`; False when a newer leader has spoken."""
        if leader_epoch < self.leader_epoch:
            return False
        self._changes += 1
        self.leader_epoch = leader_epoch
        self.published, self.published_until_ms, self.note = limit, now_ms + ttl_ms, note
        return True

    def observe(self, amount: Amount, ttl_ms: int, now_ms: int) -> list[str]:
        """Take note of the interactive load seen at the engine; gives the batch permits asked back for it."""
        self._expire(now_ms)
        self._changes += 1
        self.observed, self.observed_until_ms = amount, now_ms + ttl_ms
        return self._reclaim(now_ms)

    def refuse(self) -> None:
        """Count a chat request that has waited for room as long as it may, and was refused for good."""
        self.refused += 1

    def beat(self, now_ms: int) -> None:
        """A gateway or guard is alive: chat that does not show here is not there."""
        self.beat_at_ms = now_ms

    def pause(self, pause_ms: int, now_ms: int) -> None:
        """Admit no batch request for a while; a longer pause stands."""
        self._forget_too_late(now_ms)
        self.paused_until_ms = max(self.paused_until_ms, now_ms + pause_ms)

    # --- the rules

    def _refuse_batch(self, ask: Ask, now_ms: int) -> Refusal | None:
        if not ask.amount.fits(self.capacity.most_batch):
            return Refusal(Reason.TOO_LARGE)
        if now_ms < self.paused_until_ms:
            return Refusal(Reason.PAUSED, (self.paused_until_ms - now_ms) / 1000)
        in_use = self.held(Kind.BATCH) + self.reclaiming()
        wanted = in_use + ask.amount
        chat = self.interactive_use(now_ms)
        if not wanted.fits(self.capacity.total - chat.at_least(self.capacity.protected_interactive)):
            return Refusal(Reason.PROTECTED)
        in_force = self.limit(now_ms)
        room = headroom(self.capacity, in_force, chat, in_use.slots, ask.expected_ms / 1000)
        # When batch holds nothing, one ticket larger than the limit may run: else it never would.
        if not wanted.fits(room) and in_use.slots > 0:
            return Refusal(Reason.LIMIT)
        is_above_floor = not wanted.fits(self.capacity.floor)
        prefilling = self.prefill_tokens()
        with_it = prefilling + ask.prompt_tokens
        is_in_the_way = bool(self._waiting) and with_it > in_force.outlook.prefill_beside_tokens
        if is_in_the_way and (is_above_floor or now_ms - self._waiting_since_ms < FLOOR_HOLD_MS):
            return Refusal(Reason.FIRST_TOKEN)
        is_too_much = prefilling > 0 and with_it > in_force.prefill_tokens
        if is_too_much and (is_above_floor or now_ms - self._batch_at_ms < FLOOR_HOLD_MS):
            return Refusal(Reason.PREFILL)
        return None

    def _refuse_interactive(self, ask: Ask) -> Refusal | None:
        if not ask.amount.fits(self.capacity.most_interactive):
            return Refusal(Reason.TOO_LARGE)
        # By its own count: a scrape shows for seconds more what has ended since.
        if not (self.held(Kind.INTERACTIVE) + ask.amount).fits(self.capacity.most_interactive):
            return Refusal(Reason.CAPACITY)
        return None

    def _reclaim(self, now_ms: int) -> list[str]:
        """Ask back what stands in interactive's way."""
        room = self.capacity.total - self.interactive_use(now_ms)
        return self._revoke(pull_back.victims(self._running(now_ms), room, self.capacity.floor, pull_back.SPARE_MS))

    def _make_room(self, now_ms: int) -> list[str]:
        """Chat had to be refused: batch goes to its floor at once, whoever is about to end, before chat asks again."""
        return self._revoke(pull_back.victims(self._running(now_ms), NOTHING, self.capacity.floor, spare_ms=0))

    def _clear_the_way(self, now_ms: int) -> list[str]:
        """Ask back the prompts that a chat request would wait behind."""
        outlook = self.limit(now_ms).outlook
        if outlook.prefill_rate == 0:
            return []
        running = self._running(now_ms)
        most, rate = outlook.prefill_ahead_tokens, outlook.prefill_rate
        return self._revoke(pull_back.in_front(running, most, rate, self.capacity.floor))

    def _expected_seconds(self) -> float:
        expected_ms = [e.expected_ms for e in self.entries.values() if e.kind is Kind.BATCH]
        return sum(expected_ms) / max(1, len(expected_ms)) / 1000

    def _running(self, now_ms: int) -> list[pull_back.Running]:
        return [
            pull_back.Running(
                token, e.order, e.amount, e.has_first_token, e.left_ms(now_ms), e.prompt_tokens, now_ms - e.at_ms
            )
            for token, e in self.entries.items()
            if e.kind is Kind.BATCH and not e.is_reclaiming
        ]

    def _revoke(self, tokens: list[str]) -> list[str]:
        for token in tokens:
            entry = self.entries[token]
            self._count(token, entry, -1)
            entry.is_reclaiming = entry.is_revoked = True
            self._count(token, entry, 1)
        self.revoked += len(tokens)
        return tokens

    def _add(self, token: str, kind: Kind, ask: Ask, now_ms: int, *, has_first_token: bool) -> None:
        if kind is Kind.INTERACTIVE and not has_first_token and not self._waiting:
            self._waiting_since_ms = now_ms
        self._order += 1
        self.entries[token] = entry = _Entry(
            kind,
            ask.amount.tokens,
            ask.prompt_tokens,
            self._order,
            ask.expected_ms,
            at_ms=now_ms,
            expires_at_ms=now_ms + self.lease_ms,
            has_first_token=has_first_token,
        )
        self._count(token, entry, 1)

    def _count(self, token: str, entry: _Entry, sign: Literal[1, -1]) -> None:
        """Add what an entry comes to, or take it away: before and after each change of it."""
        self._changes += 1
        change = Amount(sign, sign * entry.tokens)
        if entry.is_reclaiming:
            self._reclaiming += change
        else:
            self._held[entry.kind] += change
        if not entry.has_first_token:
            if entry.kind is Kind.BATCH:
                self._prefill_tokens += sign * entry.prompt_tokens
            elif sign > 0:
                self._waiting[token] = entry.at_ms
            else:
                del self._waiting[token]
        self._expires_at_ms = min(self._expires_at_ms, entry.expires_at_ms)

    def _standing(self, token: str) -> Standing:
        entry = self.entries.get(token)
        if entry is None:
            return Standing.GONE
        return Standing.REVOKED if entry.is_revoked else Standing.HELD

    def _expire(self, now_ms: int) -> None:
        self._forget_too_late(now_ms)
        latest_ms = now_ms + 2 * self.lease_ms
        if now_ms < self._expires_at_ms and not latest_ms < self._expires_at_ms < math.inf:
            return
        self._waiting_since_ms = min(self._waiting_since_ms, now_ms)
        self._batch_at_ms = min(self._batch_at_ms, now_ms)
        for entry in self.entries.values():
            if entry.expires_at_ms > latest_ms:  # one lease, in which a live holder renews it
                entry.expires_at_ms = now_ms + self.lease_ms
        for token in [token for token, entry in self.entries.items() if entry.expires_at_ms <= now_ms]:
            self._count(token, self.entries.pop(token), -1)
        self._expires_at_ms = min((entry.expires_at_ms for entry in self.entries.values()), default=math.inf)

    def _forget_too_late(self, now_ms: int) -> None:
        """Drop what ends later than anything may: it was announced before the clock was set back."""
        if self.settled_at_ms > now_ms + self.lease_ms:
            self.settled_at_ms = 0
        latest_ms = now_ms + LONGEST_MS
        if self.published_until_ms > latest_ms:
            self.published, self.published_until_ms, self.note = None, 0, ""
        if self.observed_until_ms > latest_ms:
            self.observed, self.observed_until_ms = NOTHING, 0
        if self.paused_until_ms > latest_ms:
            self.paused_until_ms = 0
