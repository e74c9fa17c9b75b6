"""The control loop on a real Valkey server: what it publishes, what it says of it, and what does not stop it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from scheduler.control import LIMIT_SECONDS, PoolControl, control
from scheduler.hours import SharedHours
from scheduler.ledger import LEASE_SECONDS, Ledger
from scheduler.limit import Rule
from scheduler.note import Note, NotedAmount
from scheduler.permit import Ask, Kind, Permit, Standing
from scheduler.pool_reading import Condition, PoolReading
from scheduler.pools import capacity_of
from scheduler.signals.poll import STALE_SECONDS
from scheduler.snapshot import Snapshot
from tests.support.shift import pool_settings
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until_async
from tickets_batch.settings import Pool

TARGET_SECONDS = 0.3
CHAT = Ask(prompt_tokens=500, output_tokens=100)
LONG = Ask(prompt_tokens=500, output_tokens=100, expected_ms=60_000)
UTC_ZONE = ZoneInfo("UTC")
ALWAYS = SharedHours(UTC_ZONE)
DEDICATED = {"protected": {"batch": {"slots": 20, "tokens": 60_000}}}


def settings(name: str = "gpu", **changes: object) -> Pool:
    values = {"name": name, "signal": [{"type": "ledger"}], "ttft_target_seconds": TARGET_SECONDS}
    return pool_settings("http://127.0.0.1:9/v1", **(values | changes))


class Scene:
    """One pool as its holders see it; the chat's gateway beats until it is told to stop."""

    def __init__(self, valkey: ValkeyServer, pool: Pool, lease_seconds: float = 60.0) -> None:
        self.pool = pool
        self.hours = ALWAYS
        self.ledger = Ledger.connect(valkey.url, pool.name, capacity_of(pool), lease_seconds)
        self.control = PoolControl(pool, Ledger.connect(valkey.url, pool.name, capacity_of(pool)), ALWAYS)
        self.beats = True

    async def take(self, kind: Kind, count: int = 1, ask: Ask = CHAT) -> list[Permit]:
        """So many permits, the engine having begun to answer batch's."""
        permits = []
        for _ in range(count):
            permit = await self.ledger.acquire(kind, ask)
            assert isinstance(permit, Permit), permit
            if kind is Kind.BATCH:
                await self.ledger.first_token(permit)
            permits.append(permit)
        return permits

    async def reading(self) -> PoolReading:
        snapshot = await self.ledger.snapshot()
        return PoolReading.of(self.pool.name, self.ledger.capacity, self.hours, snapshot, datetime.now(UTC))

    async def until(self, condition: Callable[[Snapshot], bool], what: str) -> Snapshot:
        async def found() -> Snapshot | None:
            seen = await self.ledger.snapshot()
            return seen if condition(seen) else None

        snapshot = await wait_until_async(found, what, timeout_seconds=20)
        assert snapshot is not None
        return snapshot

    async def is_open(self) -> Snapshot:
        whole = self.ledger.capacity.most_batch
        return await self.until(lambda seen: seen.limit == whole, "batch to have all that is shared")

    async def is_at_floor(self, rule: Rule) -> Snapshot:
        def is_it(seen: Snapshot) -> bool:
            note = Note.read(seen.note)
            at_floor = seen.limit_is_published and seen.limit == self.ledger.capacity.floor
            return at_floor and note is not None and note.rule == rule

        return await self.until(is_it, f"batch to be at its floor, {rule}")

    async def decides(self, times: int) -> Snapshot:
        """So many more decisions."""
        seen = await self.ledger.snapshot()
        for _ in range(times):
            before = seen.note
            seen = await self.until(lambda now: now.note != before, "another decision")  # noqa: B023
        return seen

    async def beat(self) -> None:
        while True:
            if self.beats:
                await self.ledger.beat()
            await asyncio.sleep(0.2)


@asynccontextmanager
async def at_work(*scenes: Scene, leader_epoch: Callable[[], int | None] = lambda: 1) -> AsyncIterator[None]:
    """The control loop over these pools, founded and with a living gateway."""
    for scene in scenes:
        await scene.ledger.found()
        await scene.ledger.beat()
        await scene.control.open()
    loops = [asyncio.create_task(scene.beat()) for scene in scenes]
    loops.append(asyncio.create_task(control([scene.control for scene in scenes], leader_epoch)))
    try:
        yield
        ended = [loop for loop in loops if loop.done()]
        assert ended == [], "a loop ended by itself"
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        for scene in scenes:
            await scene.control.aclose()
            await scene.ledger.aclose()


def play(scene: Coroutine[None, None, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scene

    asyncio.run(bounded())


def closed_now() -> SharedHours:
    """Hours that begin in an hour and last one, in UTC."""
    now = datetime.now(UTC)
    begins, ends = now + timedelta(hours=1), now + timedelta(hours=2)
    return SharedHours.of([f"{begins:%H:%M}-{ends:%H:%M}"], UTC_ZONE)


class TestPublishes:
    def test_all_that_is_shared_with_a_note_that_reads_back(self, valkey: ValkeyServer) -> None:
        async def scene() -> None:
            gpu = Scene(valkey, settings())
            async with at_work(gpu):
                await gpu.is_open()
                chat = (await gpu.take(Kind.INTERACTIVE))[0]
                seen = await gpu.until(lambda s: '"waiting":1' in s.note, "the waiting request to be noted")
                note = Note.read(seen.note)
                assert note is not None
                assert note.load.in_flight == NotedAmount(slots=1, tokens=chat.ask.amount.tokens)
                assert [(source.name, source.is_fresh) for source in note.load.sources] == [("ledger", True)]
                assert not note.load.is_blind
                assert abs(note.at - datetime.now(UTC).timestamp()) < 30
                assert Note.model_validate_json(note.model_dump_json()) == note
                reading = await gpu.reading()
                assert (reading.condition, reading.note) == (Condition.SHARED, Note.read(reading.snapshot.note))

        play(scene())

    def test_a_dedicated_pool_is_batchs_own_without_any_beat(self, valkey: ValkeyServer) -> None:
        async def scene() -> None:
            own = Scene(valkey, settings("own", signal=[], **DEDICATED))
            own.beats = False
            async with at_work(own):
                await own.until(lambda seen: seen.limit_is_published, "a limit")
                reading = await own.reading()
                assert reading.snapshot.limit == own.ledger.capacity.total
                assert (reading.condition, reading.rule) == (Condition.DEDICATED, Rule.DEDICATED.value)
                await own.take(Kind.BATCH, 20, LONG)

        play(scene())

    def test_nothing_while_another_one_leads_and_again_when_we_do(self, valkey: ValkeyServer) -> None:
        leads: list[int | None] = [None]
        asked: list[int | None] = []

        def leader_epoch() -> int | None:
            asked.append(leads[0])
            return leads[0]

        async def scene() -> None:
            gpu = Scene(valkey, settings())
            async with at_work(gpu, leader_epoch=leader_epoch):
                await wait_until_async(lambda: len(asked) >= 3, "the loop to have come round")
                assert (await gpu.ledger.snapshot()).note == ""
                leads[0] = 7
                await gpu.is_open()

        play(scene())

    def test_an_older_leader_changes_nothing_and_goes_on(
        self, valkey: ValkeyServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        leads = [3]

        async def scene() -> None:
            gpu = Scene(valkey, settings())
            async with at_work(gpu, leader_epoch=lambda: leads[0]):
                await gpu.is_open()
                leads[0] = 2
                await wait_until_async(lambda: "a newer leader" in caplog.text, "the older one to be refused")
                await gpu.until(lambda seen: not seen.limit_is_published, "its last limit to run out")
                leads[0] = 4
                await gpu.is_open()

        play(scene())


class TestPullBack:
    def test_red_asks_back_what_is_over_the_floor(self, valkey: ValkeyServer) -> None:
        async def scene() -> None:
            gpu = Scene(valkey, settings())
            async with at_work(gpu):
                await gpu.is_open()
                long = await gpu.take(Kind.BATCH, 6, LONG)
                await gpu.decides(2)
                chat = (await gpu.take(Kind.INTERACTIVE))[0]  # no first token comes
                await gpu.is_at_floor(Rule.TTFT)
                await gpu.until(lambda seen: seen.revoked > 0, "batch to be asked back")
                standings = await gpu.ledger.renew(long)
                held = [token for token, standing in standings.items() if standing is Standing.HELD]
                assert held == [permit.token for permit in long[: gpu.ledger.capacity.floor.slots]]
                reading = await gpu.reading()
                assert (reading.condition, reading.rule) == (Condition.FLOOR, Rule.TTFT.value)
                for permit in (chat, *long):
                    await gpu.ledger.release(permit)
                await gpu.is_open()

        play(scene())

    def test_a_break_while_batch_was_at_its_floor_asks_nothing_back(self, valkey: ValkeyServer) -> None:
        async def scene() -> None:
            gpu = Scene(valkey, settings())
            async with at_work(gpu):
                await gpu.is_open()
                await gpu.take(Kind.BATCH, gpu.ledger.capacity.floor.slots, LONG)
                await gpu.take(Kind.INTERACTIVE)
                late = 3 * TARGET_SECONDS
                await gpu.until(lambda seen: seen.oldest_waiting_seconds > late, "the chat request to be late")
                noted = await gpu.until(lambda seen: _noted_wait(seen) > 2 * TARGET_SECONDS, "that to be read")
                note = Note.read(noted.note)
                assert note is not None
                assert note.rule in (Rule.MAXIMUM, Rule.HEADROOM)
                assert noted.revoked == 0

        play(scene())

    def test_outside_the_hours_batch_is_at_its_floor_and_what_runs_may_end(self, valkey: ValkeyServer) -> None:
        async def scene() -> None:
            gpu = Scene(valkey, settings())
            async with at_work(gpu):
                await gpu.is_open()
                held = await gpu.take(Kind.BATCH, 6, LONG)
                gpu.hours = gpu.control._hours = closed_now()
                await gpu.is_at_floor(Rule.CLOSED)
                assert (await gpu.reading()).condition is Condition.CLOSED
                later = await gpu.decides(1)
                assert (later.revoked, later.batch.slots) == (0, len(held))

        play(scene())


class TestBlind:
    def test_without_a_beat_batch_goes_to_its_floor_and_comes_back_with_it(self, valkey: ValkeyServer) -> None:
        async def scene() -> None:
            gpu = Scene(valkey, settings())
            async with at_work(gpu):
                await gpu.is_open()
                await gpu.take(Kind.BATCH, 6, LONG)
                gpu.beats = False
                blind = await gpu.is_at_floor(Rule.BLIND)
                assert blind.beat_age_seconds is not None
                assert blind.beat_age_seconds >= STALE_SECONDS
                await gpu.until(lambda s: s.batch.slots - s.reclaiming.slots == 1, "batch to be asked back")
                assert (await gpu.reading()).condition is Condition.BLIND
                gpu.beats = True
                await gpu.is_open()

        play(scene())

    def test_a_pool_that_nobody_ever_told_anything_of_the_chat(self, valkey: ValkeyServer) -> None:
        async def scene() -> None:
            gpu = Scene(valkey, settings(signal=[]))
            async with at_work(gpu):
                await gpu.is_at_floor(Rule.BLIND)

        play(scene())


class TestGoesOn:
    def test_a_tick_that_raises_in_one_pool_leaves_the_others_their_limits(
        self, valkey: ValkeyServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Broken(PoolControl):
            async def tick(self, leader_epoch: int) -> None:
                raise ZeroDivisionError

        async def scene() -> None:
            broken, gpu = Scene(valkey, settings("broken")), Scene(valkey, settings())
            ledger = Ledger.connect(valkey.url, "broken", broken.ledger.capacity)
            await broken.control.aclose()
            broken.control = Broken(broken.pool, ledger, ALWAYS)
            async with at_work(broken, gpu):
                await gpu.is_open()
                await gpu.decides(2)
                assert not (await broken.ledger.snapshot()).limit_is_published

        play(scene())
        assert "a pool's limit was not decided" in caplog.text
        assert "ZeroDivisionError" in caplog.text

    def test_a_redis_that_is_away_stops_nothing(self, valkey: ValkeyServer, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING)

        async def scene() -> None:
            gpu = Scene(valkey, settings(), lease_seconds=LEASE_SECONDS)
            async with at_work(gpu):
                await gpu.is_open()
                gpu.beats = False
                await gpu.decides(1)  # no beat is on its way
                valkey.kill()
                try:
                    await wait_until_async(lambda: "no limit was published" in caplog.text, "a tick in vain")
                finally:
                    valkey.start()
                gpu.beats = True
                await gpu.is_open()

        play(scene())

    def test_when_it_ends_its_limit_ends_soon_after(self, valkey: ValkeyServer) -> None:
        async def scene() -> None:
            gpu = Scene(valkey, settings())
            observer = Ledger.connect(valkey.url, gpu.pool.name, gpu.ledger.capacity)
            async with at_work(gpu):
                await gpu.is_open()

            async def is_stale() -> bool:
                return not (await observer.snapshot()).limit_is_published

            await wait_until_async(is_stale, "the limit to run out", timeout_seconds=LIMIT_SECONDS + 5)
            seen = await observer.snapshot()
            assert seen.limit == observer.capacity.floor
            assert (
                PoolReading.of("gpu", observer.capacity, ALWAYS, seen, datetime.now(UTC)).condition is Condition.STALE
            )
            await observer.aclose()

        play(scene())


def _noted_wait(seen: Snapshot) -> float:
    note = Note.read(seen.note)
    return 0.0 if note is None else note.load.oldest_waiting_seconds
