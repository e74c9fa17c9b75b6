"""The ledger in Valkey and the book in memory, asked the same by many processes, and a recount of what they count."""

import asyncio
from dataclasses import replace

from redis.asyncio import Redis

from scheduler.book import Book
from scheduler.capacity import Amount, PoolCapacity, total
from scheduler.ledger import Ledger
from scheduler.permit import Ask, Kind, Permit, PublishedLimit, Refusal, Standing
from scheduler.snapshot import Snapshot
from tests.support.valkey import ValkeyServer

POOL = "gpu"
CAPACITY = PoolCapacity(Amount(6, 6_000), Amount(2, 2_000), Amount(1, 1_000))
LEASE_SECONDS = 5.0
LEASE_MS = 5_000
START_MS = 1_000_000
CLOCK_KEY = "test:now"
CLOCK = f"local function now_ms() return tonumber(redis.call('GET', '{CLOCK_KEY}')) end"


class Permits:
    """One pool. Every verb goes to Valkey over the connection of the process that asks, and to the book."""

    def __init__(self, server: ValkeyServer, runner: asyncio.Runner) -> None:
        self._server, self._runner = server, runner
        self._client = server.client()
        self._client.flushall()
        self.now_ms = START_MS
        self.book = Book(CAPACITY, LEASE_MS, settled_at_ms=START_MS + LEASE_MS)
        self.epoch = ""
        self.given: list[Permit] = []
        self.has_outgrown = False  # a holder that came back may hold more than its class was promised
        self._opened: list[Ledger] = []
        self.set_clock(START_MS)
        self._watcher = self.connect()

    def connect(self) -> Ledger:
        """The connection of one more process."""
        redis = Redis.from_url(self._server.url, decode_responses=True)
        self._opened.append(Ledger(redis, POOL, CAPACITY, LEASE_SECONDS, clock=CLOCK))
        return self._opened[-1]

    def close(self) -> None:
        """Close every connection."""
        for ledger in self._opened:
            self._runner.run(ledger.aclose())
        self._client.close()

    def set_clock(self, now_ms: int) -> None:
        """It is so late in Valkey."""
        self.now_ms = now_ms
        self._client.set(CLOCK_KEY, now_ms)

    # --- the verbs

    def acquire(self, ledger: Ledger, kind: Kind, ask: Ask) -> Permit | Refusal:
        answer = self._runner.run(ledger.acquire(kind, ask))
        token = answer.token if isinstance(answer, Permit) else "refused"
        refusal, _ = self.book.acquire(token, kind, ask, self.now_ms)
        assert refusal == (answer if isinstance(answer, Refusal) else None)
        if isinstance(answer, Permit):
            self.given.append(answer)
        return answer

    def first_token(self, ledger: Ledger, permit: Permit) -> Standing:
        standing = self._runner.run(ledger.first_token(permit))
        assert standing is self.book.first_token(permit.token, self.now_ms)
        return standing

    def renew(self, ledger: Ledger, permits: list[Permit]) -> dict[str, Standing]:
        expected = self.book.renew([permit.token for permit in permits], self.now_ms)
        for permit in permits:
            comes_back = permit.epoch != self.epoch or permit.kind is Kind.INTERACTIVE
            if expected[permit.token] is Standing.GONE and comes_back:
                expected[permit.token] = self.book.register(permit, self.now_ms)
                self.has_outgrown |= expected[permit.token] is not Standing.GONE
        standings = self._runner.run(ledger.renew(permits))
        assert standings == expected
        return standings

    def release(self, ledger: Ledger, permit: Permit) -> None:
        self._runner.run(ledger.release(permit))
        self.book.release(permit.token, self.now_ms)

    def drain(self, ledger: Ledger, permit: Permit, seconds: float) -> None:
        self._runner.run(ledger.drain(permit, seconds))
        self.book.drain(permit.token, round(seconds * 1000), self.now_ms)

    def pause(self, ledger: Ledger, seconds: float) -> None:
        self._runner.run(ledger.pause(seconds))
        self.book.pause(round(seconds * 1000), self.now_ms)

    def publish(self, ledger: Ledger, limit: PublishedLimit, ttl_seconds: float, leader_epoch: int) -> bool:
        accepted = self._runner.run(ledger.publish(limit, ttl_seconds, leader_epoch))
        assert accepted is self.book.publish(limit, round(ttl_seconds * 1000), leader_epoch, self.now_ms)
        return accepted

    def revoke(self, ledger: Ledger, target: Amount) -> None:
        assert self._runner.run(ledger.revoke(target)) == self.book.revoke(target, self.now_ms)

    def look(self, ledger: Ledger) -> Snapshot:
        seen = self._runner.run(ledger.snapshot())
        assert replace(seen, epoch="") == self.book.snapshot(self.now_ms)
        return seen

    # --- faults

    def wipe(self) -> None:
        """Valkey comes back empty."""
        self._client.flushall()
        self.set_clock(self.now_ms)
        self.book = Book(CAPACITY, LEASE_MS, settled_at_ms=self.now_ms + LEASE_MS)

    def forget_scripts(self) -> None:
        """Valkey no longer knows any script."""
        self._client.script_flush()

    # --- what must hold

    def check(self) -> None:
        """Both tell the same; what Valkey counts is what it keeps; nobody holds more than the rules give."""
        seen = self.look(self._watcher)
        self.epoch = seen.epoch
        members = list(self.book.entries.values())
        batch = [member for member in members if member.kind is Kind.BATCH]
        chat = [member for member in members if member.kind is Kind.INTERACTIVE]
        assert seen.interactive == total(member.amount for member in chat)
        assert seen.batch == total(member.amount for member in batch)
        assert seen.reclaiming == total(member.amount for member in batch if member.is_reclaiming)
        assert seen.prefill_tokens == sum(member.prompt_tokens for member in batch if not member.has_first_token)
        assert seen.interactive_waiting == sum(not member.has_first_token for member in chat)
        self.has_outgrown &= bool(members)
        if not self.has_outgrown:
            held = seen.batch - seen.reclaiming
            assert (seen.interactive + held).fits(CAPACITY.total), "more is held than the pool carries"
            assert seen.interactive.fits(CAPACITY.most_interactive), "chat ate batch's protected share"
            assert held.fits(CAPACITY.most_batch), "batch ate the chat's protected share"

    def assert_empty(self, ledger: Ledger) -> None:
        """Nothing is counted, and of all the permits that batch ever had none is there."""
        self.check()
        assert self.book.entries == {}
        given = [permit for permit in self.given if permit.kind is Kind.BATCH]
        assert set(self.renew(ledger, given).values()) <= {Standing.GONE}, "a permit was left"
        self.check()
