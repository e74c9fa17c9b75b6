"""Batch's requests are served after the chat's where the engine knows priorities, and at once where it refuses them."""

import asyncio
import json
import logging
from collections.abc import Iterator

import pytest

from jobs.outcomes import Attempt, Symptom
from jobs.store.database import Database
from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.faults import Fault, Rule
from tests.engine.process import EngineThread
from tests.support.aftermath import aftermath
from tests.support.calls import ask
from tests.support.canned import STREAM_HEAD, CannedServer, framed
from tests.support.engines import chat_body, start
from tests.support.shift import at_work, play, pool_settings
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until, wait_until_async
from tickets_batch.settings import Engine
from workers.client import ModelClient

SAID = "pool gpu: the server takes no priority"


@pytest.fixture
def engine() -> Iterator[EngineThread]:
    with EngineThread(EngineProfile.instant()) as running:
        yield running


def bodies(count: int) -> list[str]:
    return [f"Where is parcel {number}?" for number in range(count)]


def calls_at(base_url: str, count: int, engine: Engine = "vllm") -> list[Attempt]:
    """So many calls by one client, one after the other."""

    async def call() -> list[Attempt]:
        client = ModelClient(pool_settings(base_url, engine=engine), at_once=4)
        try:
            return [await ask(client) for _ in range(count)]
        finally:
            await client.aclose()

    return asyncio.run(call())


def test_a_chat_request_passes_the_tickets_that_wait_at_the_engine(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    engine.set_profile(policy="priority", slots=1, step_base_seconds=0.1)

    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, bodies(6)) as shift:
            driving = asyncio.create_task(shift.drive())
            await wait_until_async(lambda: engine.state()["waiting"] >= 4, "tickets to wait at the engine")
            with start(engine, chat_body(2)):
                await driving
                await shift.finish()
            rows = engine.log()
            assert {(row.klass, row.priority) for row in rows} == {("batch", 1), ("interactive", 0)}
            started = [row.klass for row in sorted(rows, key=lambda row: row.started_at or 0.0)]
            assert started.index("interactive") <= 2

    play(scene)


def test_a_server_that_refuses_priorities_costs_nothing_but_one_line_in_the_log(
    database: Database, valkey: ValkeyServer, engine: EngineThread, caplog: pytest.LogCaptureFixture
) -> None:
    engine.set_profile(refuses_priority=True)

    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, bodies(100)) as shift:
            await shift.finish()
            seen = aftermath(database, shift.batch_id)
            assert (seen.states, set(seen.spent)) == ({"succeeded": 100}, {1})
            assert set(map(tuple, seen.symptoms.values())) == {(None,)}
            refused = [row for row in engine.log() if row.outcome == "rejected"]
            assert 1 <= len(refused) <= 16  # those that were sent before the first was refused
            assert {row.priority for row in engine.log() if row.outcome == "ok"} == {0}

    play(scene)
    assert sum(record.getMessage().startswith(SAID) for record in caplog.records) == 1


def test_a_refusal_inside_the_stream_is_understood_too(caplog: pytest.LogCaptureFixture) -> None:
    message = "Got priority 1 but Priority scheduling is not enabled."
    error = {"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400}}
    body = f"data: {json.dumps(error)}\n\ndata: [DONE]\n\n".encode()

    async def call() -> tuple[Attempt, list[bytes]]:
        async with CannedServer(STREAM_HEAD + framed(body) + framed(b"")) as server:
            client = ModelClient(pool_settings(server.base_url), at_once=1)
            attempt = await ask(client)
            await client.aclose()
            return attempt, server.requests

    attempt, requests = asyncio.run(call())
    assert [json.loads(request.partition(b"\r\n\r\n")[2]).get("priority") for request in requests] == [1, None]
    assert attempt.symptom is Symptom.REFUSED
    assert caplog.records == []  # it was refused without one as well: not for its priority


@pytest.mark.parametrize(("name", "sent"), [("sglang", -(2**63)), ("llama.cpp", 0), ("openai", 0)])
def test_every_engine_gets_what_it_understands(engine: EngineThread, name: Engine, sent: int) -> None:
    (attempt,) = calls_at(engine.base_url, 1, name)
    assert attempt.symptom is None
    (row,) = engine.log()
    assert row.priority == sent


def test_what_is_refused_for_another_reason_is_not_sent_twice(engine: EngineThread) -> None:
    engine.set_faults(Rule(Fault("400")))
    (attempt,) = calls_at(engine.base_url, 1)
    assert attempt.symptom is Symptom.REFUSED
    assert len(engine.log()) == 1


def test_a_call_withdrawn_while_it_is_repeated_frees_the_engine(engine: EngineThread) -> None:
    engine.set_profile(refuses_priority=True)
    engine.set_faults(Rule(Fault("stall", after_tokens=1)))

    async def call() -> None:
        client = ModelClient(pool_settings(engine.base_url), at_once=1)
        task = asyncio.ensure_future(ask(client))
        await wait_until_async(lambda: engine.state()["running"] == 1, "the repeated call to be at the engine")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.aclose()

    asyncio.run(call())
    wait_until(lambda: engine.state()["running"] == 0, "the slot to be free again")
    assert [row.outcome for row in engine.log()] == ["rejected", "aborted"]


def test_it_is_remembered_by_the_process(engine: EngineThread, caplog: pytest.LogCaptureFixture) -> None:
    engine.set_profile(refuses_priority=True)
    attempts = calls_at(engine.base_url, 5)
    assert [attempt.symptom for attempt in attempts] == [None] * 5
    assert [row.outcome for row in engine.log()] == ["rejected"] + ["ok"] * 5
    assert [record.levelno for record in caplog.records if record.getMessage().startswith(SAID)] == [logging.WARNING]
