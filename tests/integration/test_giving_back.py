"""Jobs that go back without an answer: as they were if nobody called for them, behind fresh work if users came first.

And what a withdrawn request cost is counted, though the engine does not say.
"""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from jobs.store import claims
from jobs.store.database import Database
from scheduler.capacity import Amount
from scheduler.permit import Ask, Kind, Permit, PublishedLimit, Refusal
from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.log import LogRow
from tests.engine.process import EngineThread
from tests.support.shift import POOL, Shift, at_work, play
from tests.support.store import assert_consistent, job_rows
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until_async

pytestmark = pytest.mark.long


@pytest.fixture
def engine() -> Iterator[EngineThread]:
    with EngineThread(EngineProfile(step_base_seconds=0.05)) as running:
        yield running


def bodies(count: int) -> list[str]:
    return [f"Where is parcel {number}?" for number in range(count)]


def make_tickets_long(engine: EngineThread) -> None:
    engine.change_settings(answer_tokens=24)
    engine.set_profile(step_base_seconds=0.15)


async def everything_written(shift: Shift) -> None:
    await wait_until_async(lambda: shift.executor.in_flight == 0, "the flights to land")
    await wait_until_async(lambda: shift.batch().running == 0, "everything to be written")


def test_jobs_that_nobody_called_for_go_back_as_they_were(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    make_tickets_long(engine)

    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, bodies(60)) as shift:
            await shift.drive(seconds=0.5, at_once=4)
            flying = shift.executor.in_flight
            await wait_until_async(lambda: shift.batch().running == flying, "the others to be given back")
            rows = job_rows(database, shift.batch_id)
            left = [row for row in rows if row.state == "pending"]
            assert len(left) == 60 - flying
            nothing = (0, 0, 0, None)
            assert {(row.attempts, row.requeues, row.yields, row.not_before) for row in left} == {nothing}
            assert shift.batch().yields == 0
            again = claims.claim(database, shift.batch_id, 3, "another", 15.0)
            assert [job.id for job in again] == [row.id for row in left[:3]]

    play(scene)


def test_jobs_that_a_stopping_worker_had_not_called_for_go_back_as_they_were(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    make_tickets_long(engine)

    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, bodies(30)) as shift:
            driving = asyncio.create_task(shift.drive(at_once=2))
            await wait_until_async(lambda: engine.state()["running"] == 2, "two requests at the engine")
            await shift.executor.stop(grace_seconds=0.1)
            await driving
            rows = job_rows(database, shift.batch_id)
            assert [(row.state, row.attempts) for row in rows] == [("pending", 0)] * 30
            assert [(row.requeues, row.yields) for row in rows] == [(1, 1)] * 2 + [(0, 0)] * 28

    play(scene)


def test_a_job_that_made_room_for_users_spends_no_attempt_and_comes_after_fresh_ones(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    make_tickets_long(engine)

    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, bodies(40)) as shift:
            driving = asyncio.create_task(shift.drive(seconds=3))
            await wait_until_async(lambda: engine.state()["running"] >= 10, "ten requests at the engine")
            await shift.ledger.publish(PublishedLimit(POOL.floor, 2_000), ttl_seconds=60, leader_epoch=2)
            await wait_until_async(lambda: shift.is_pulled_back(9), "the yields to be written")
            await driving
            await everything_written(shift)
            rows = job_rows(database, shift.batch_id)
            back = [row for row in rows if row.yields]
            assert {(row.state, row.attempts, row.requeues, row.yields) for row in back} == {("pending", 0, 1, 1)}
            fresh = sum(row.state == "pending" for row in rows) - len(back)
            assert fresh > 0
            again = claims.claim(database, shift.batch_id, 40, "another", 15.0)
            assert {job.id for job in again[fresh:]} == {row.id for row in back}
            assert_consistent(database)

    play(scene)


# What a withdrawn request cost.


def wasted(
    database: Database,
    valkey: ValkeyServer,
    engine: EngineThread,
    texts: list[str],
    when: Callable[[Shift], bool],
    what: str,
    before: Callable[[Shift], None] = lambda _: None,
) -> tuple[int, list[LogRow]]:
    """What was counted as wasted when everything was withdrawn as soon as `when`, and the engine's rows of it."""
    seen: list[tuple[int, list[LogRow]]] = []

    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, texts) as shift:
            before(shift)
            driving = asyncio.create_task(shift.drive())
            await wait_until_async(lambda: when(shift), what)
            await shift.executor.stop(grace_seconds=0.0)
            await driving
            await wait_until_async(lambda: engine.state()["running"] == 0, "the engine to notice")
            assert {(row.state, row.attempts) for row in job_rows(database, shift.batch_id)} == {("pending", 0)}
            assert_consistent(database)
            seen.append((shift.batch().wasted_tokens, engine.log()))

    play(scene)
    return seen[0]


def test_the_prompt_and_what_was_said_of_a_withdrawn_request_are_wasted(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    make_tickets_long(engine)
    texts = ["Where is my parcel? " * 200 for _ in range(8)]

    def all_speak(shift: Shift) -> bool:
        calls = [flight.call for flight in shift.executor._flights.values()]
        return len(calls) == 8 and all(call.tokens >= 3 for call in calls)

    counted, rows = wasted(database, valkey, engine, texts, all_speak, "all to be answering")
    true = sum(row.prompt_tokens + row.output_tokens for row in rows)
    assert min(row.output_tokens for row in rows) >= 3
    assert 0.9 * true <= counted <= 1.4 * true  # the first estimate of a prompt is a quarter more


def test_of_a_prompt_that_was_still_being_read_only_a_part_is_wasted(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    engine.set_profile(prefill_token_seconds=0.001, step_token_budget=128)
    texts = ["x" * 20_000]  # 5,000 tokens, 5 s

    def a_slow_engine_is_known(shift: Shift) -> None:
        for _ in range(16):
            shift.endpoint.durations.learn(1_000, 8, 24, 2.0, ttft_seconds=1.4)

    def is_reading(_: Shift) -> bool:
        return engine.metric("vllm:kv_cache_usage_perc") * EngineProfile().kv_capacity_tokens > 500

    counted, rows = wasted(
        database, valkey, engine, texts, is_reading, "the engine to have read a part", a_slow_engine_is_known
    )
    (row,) = rows
    assert row.first_token_at is None
    assert 200 < counted < 4_000


def test_a_permit_asked_back_before_its_request_was_sent_wastes_nothing(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, bodies(1)) as shift:
            hold = shift.endpoint.gate.hold

            def hold_and_withdraw(permit: Permit, withdraw: Callable[[], None]) -> None:
                hold(permit, withdraw)
                withdraw()

            shift.endpoint.gate.hold = hold_and_withdraw  # type: ignore[method-assign]
            await shift.drive(seconds=0.3)
            await everything_written(shift)
            assert engine.log() == []
            assert (shift.batch().wasted_tokens, shift.batch().withdrawn > 0) == (0, True)
            assert (await shift.ledger.snapshot()).batch == Amount()

    play(scene)


# Who goes first where not everybody can.


def asked_for(shift: Shift) -> list[int]:
    """The prompt tokens of every ask from now on."""
    asks: list[int] = []
    really_ask = shift.endpoint.gate.ask

    async def noted(ask: Ask) -> Permit | Refusal:
        asks.append(ask.prompt_tokens)
        return await really_ask(ask)

    shift.endpoint.gate.ask = noted  # type: ignore[method-assign]
    return asks


def test_a_small_ticket_passes_a_large_one_that_has_no_room(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    make_tickets_long(engine)
    texts = ["x" * 120_000, *bodies(40)]

    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, texts) as shift:
            chat = await shift.ledger.acquire(Kind.INTERACTIVE, _chat(tokens=25_000))
            assert isinstance(chat, Permit)
            driving = asyncio.create_task(shift.drive(seconds=6))
            await wait_until_async(lambda: engine.busy() >= 8, "the small ones at the engine")
            assert shift.executor._waiting[0].custom_id == "t-0"
            await driving

    play(scene)


def test_tickets_of_about_one_size_are_asked_for_once_a_try(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    texts = ["x" * (12_000 - 200 * number) for number in range(20)]

    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, texts) as shift:
            chat = await shift.ledger.acquire(Kind.INTERACTIVE, _chat(tokens=58_000))
            assert isinstance(chat, Permit)
            asks = asked_for(shift)
            await shift.drive(seconds=0.5)
            assert len(asks) >= 3
            assert len(set(asks)) == 1

    play(scene)


def test_while_a_chat_request_waits_for_its_first_token_nobody_else_is_asked_for(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    texts = ["x" * 40_000, *bodies(20)]

    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, texts) as shift:
            chat = await shift.ledger.acquire(Kind.INTERACTIVE, _chat(tokens=500, streamed=True))
            assert isinstance(chat, Permit)
            asks = asked_for(shift)
            driving = asyncio.create_task(shift.drive(seconds=5))
            await wait_until_async(lambda: len(asks) >= 5, "some asks")
            assert len(set(asks)) == 1
            await shift.ledger.first_token(chat)
            await wait_until_async(lambda: len(set(asks)) > 1, "the others to be asked for")
            await driving

    play(scene)


def _chat(*, tokens: int, streamed: bool = False) -> Ask:
    return Ask(tokens - 100, 100, streamed=streamed)
