"""The rules of admission, pure: who may hold how much of a pool, and what is asked back.

`Book` is the whole ledger in memory with the clock as an argument. `scheduler/lua` is the same rule for Redis; a
property test drives both with the same histories. The simulator admits with `Book` itself.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from scheduler.capacity import NOTHING, Amount, PoolCapacity
from scheduler.permit import Ask, Kind, Permit, PublishedLimit, Reason, Refusal, Standing


@dataclass(slots=True)
class _Entry:
    kind: Kind
    tokens: int
    prompt_tokens: int
    order: int
    expires_at_ms: int
    has_first_token: bool = False
    is_reclaiming: bool = False  # revoked or draining: counted, but no longer batch's to hold
    is_revoked: bool = False


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
    _order: int = 0

    # --- reading

    def held(self, kind: Kind) -> Amount:
        """What a class holds, without what is being reclaimed from it."""
        return _sum(entry for entry in self.entries.values() if entry.kind is kind and not entry.is_reclaiming)

    def reclaiming(self) -> Amount:
        """What batch was asked to give back, or has withdrawn while the engine may still be working on it."""
        return _sum(entry for entry in self.entries.values() if entry.is_reclaiming)

    def prefill_tokens(self) -> int:
        """Prompt tokens of batch that have no first token yet."""
        return sum(e.prompt_tokens for e in self.entries.values() if e.kind is Kind.BATCH and not e.has_first_token)

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
        return PublishedLimit(limit, self.published.prefill_tokens)

    # --- the verbs

    def acquire(self, token: str, kind: Kind, ask: Ask, now_ms: int) -> tuple[Refusal | None, list[str]]:
        """Admit a request or say why not; the second value names the batch permits asked back to make room."""
        self._expire(now_ms)
        if token in self.entries:  # the same ask again, after an answer that was lost on the way
            return None, []
        refuse = self._refuse_batch if kind is Kind.BATCH else self._refuse_interactive
        refusal = refuse(ask, now_ms)
        if refusal is not None:
            return refusal, []
        self._add(token, kind, ask, now_ms)
        return None, self._reclaim(now_ms) if kind is Kind.INTERACTIVE else []

    def first_token(self, token: str, now_ms: int) -> Standing:
        """The engine has begun to answer: the prompt is no longer in front of anyone."""
        self._expire(now_ms)
        if token in self.entries:
            self.entries[token].has_first_token = True
        return self._standing(token)

    def settle(self, token: str, tokens: int, now_ms: int) -> list[str]:
        """Book the true tokens of a request in place of the estimate."""
        self._expire(now_ms)
        if token not in self.entries:
            return []
        self.entries[token].tokens = tokens
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

        Batch may do so only until the new ledger has settled; later its slot may be another's.
        """
        self._expire(now_ms)
        may_return = permit.kind is Kind.INTERACTIVE or now_ms < self.settled_at_ms
        if permit.token not in self.entries and may_return:
            self._add(permit.token, permit.kind, permit.ask, now_ms)
            self._reclaim(now_ms)
        return self._standing(permit.token)

    def release(self, token: str, now_ms: int) -> None:
        """Give a permit back; an unknown token is no error, its lease has run out."""
        self._expire(now_ms)
        self.entries.pop(token, None)

    def drain(self, token: str, drain_ms: int, now_ms: int) -> None:
        """The request was withdrawn, but the engine may still be working on it for `drain_ms`."""
        self._expire(now_ms)
        if token in self.entries:
            entry = self.entries[token]
            entry.is_reclaiming = entry.kind is Kind.BATCH
            entry.expires_at_ms = now_ms + drain_ms

    def revoke(self, target: Amount, now_ms: int) -> list[str]:
        """Ask back what batch holds over `target`, or over its floor where that is more."""
        self._expire(now_ms)
        return self._ask_back(lambda held: held - target)

    def publish(self, limit: PublishedLimit, ttl_ms: int, leader_epoch: int, now_ms: int) -> bool:
        """Put a limit in force for `ttl_ms`; False when a newer leader has spoken."""
        if leader_epoch < self.leader_epoch:
            return False
        self.leader_epoch = leader_epoch
        self.published, self.published_until_ms = limit, now_ms + ttl_ms
        return True

    def observe(self, amount: Amount, ttl_ms: int, now_ms: int) -> None:
        """Take note of the interactive load seen at the engine."""
        self.observed, self.observed_until_ms = amount, now_ms + ttl_ms

    def pause(self, pause_ms: int, now_ms: int) -> None:
        """Admit no batch request for a while; a longer pause stands."""
        self.paused_until_ms = max(self.paused_until_ms, now_ms + pause_ms)

    # --- the rules

    def _refuse_batch(self, ask: Ask, now_ms: int) -> Refusal | None:
        if not ask.amount.fits(self.capacity.most_batch):
            return Refusal(Reason.TOO_LARGE)
        if now_ms < self.paused_until_ms:
            return Refusal(Reason.PAUSED, (self.paused_until_ms - now_ms) / 1000)
        in_use = _sum(entry for entry in self.entries.values() if entry.kind is Kind.BATCH)
        wanted = in_use + ask.amount
        room = self.capacity.total - self.interactive_use(now_ms).at_least(self.capacity.protected_interactive)
        if not wanted.fits(room):
            return Refusal(Reason.PROTECTED)
        in_force = self.limit(now_ms)
        # When batch holds nothing, one ticket larger than the limit may run: else it never would.
        if not wanted.fits(in_force.limit) and in_use.slots > 0:
            return Refusal(Reason.LIMIT)
        prefilling = self.prefill_tokens()
        if prefilling > 0 and prefilling + ask.prompt_tokens > in_force.prefill_tokens:
            return Refusal(Reason.PREFILL)
        return None

    def _refuse_interactive(self, ask: Ask, now_ms: int) -> Refusal | None:
        if not ask.amount.fits(self.capacity.most_interactive):
            return Refusal(Reason.TOO_LARGE)
        if not (self.interactive_use(now_ms) + ask.amount).fits(self.capacity.most_interactive):
            return Refusal(Reason.CAPACITY)
        return None

    def _reclaim(self, now_ms: int) -> list[str]:
        """Ask back what stands in interactive's way."""
        in_use = self.interactive_use(now_ms)
        return self._ask_back(lambda held: in_use + held - self.capacity.total)

    def _ask_back(self, excess: Callable[[Amount], Amount]) -> list[str]:
        """Revoke the youngest without a first token first, until nothing is in excess or batch is at its floor."""
        floor, held, victims = self.capacity.floor, self.held(Kind.BATCH), []
        candidates = [(e.has_first_token, -e.order, t) for t, e in self.entries.items() if _can_be_revoked(e)]
        for _, _, token in sorted(candidates):
            over = excess(held).at_most(held - floor)
            if over.slots <= 0 and over.tokens <= 0:
                break
            entry = self.entries[token]
            entry.is_reclaiming = entry.is_revoked = True
            held -= Amount(1, entry.tokens)
            victims.append(token)
        return victims

    def _add(self, token: str, kind: Kind, ask: Ask, now_ms: int) -> None:
        self._order += 1
        expires_at_ms = now_ms + self.lease_ms
        self.entries[token] = _Entry(kind, ask.amount.tokens, ask.prompt_tokens, self._order, expires_at_ms)

    def _standing(self, token: str) -> Standing:
        entry = self.entries.get(token)
        if entry is None:
            return Standing.GONE
        return Standing.REVOKED if entry.is_revoked else Standing.HELD

    def _expire(self, now_ms: int) -> None:
        for token in [token for token, entry in self.entries.items() if entry.expires_at_ms <= now_ms]:
            del self.entries[token]


def _can_be_revoked(entry: _Entry) -> bool:
    return entry.kind is Kind.BATCH and not entry.is_reclaiming


def _sum(entries: Iterable[_Entry]) -> Amount:
    slots = tokens = 0
    for entry in entries:
        slots += 1
        tokens += entry.tokens
    return Amount(slots, tokens)
