"""The model client over real HTTP: a call that works, one that takes too long, one that is withdrawn."""

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from jobs.outcomes import Attempt, Symptom, Usage
from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.answer import expected_label
from tests.engine.faults import Fault, Rule
from tests.engine.process import EngineThread
from tests.engine.service import ServiceSettings
from tests.support.calls import BODY, LABELS, TICKET, ask, attempt_at, client_of
from tests.support.wait import wait_until, wait_until_async
from tickets_batch.errors import SettingsError
from tickets_batch.settings import Pool, Secret
from workers.client import InFlight, ModelClient


@pytest.fixture(scope="module")
def running_engine() -> Iterator[EngineThread]:
    with EngineThread(EngineProfile(slots=4).at_speed(50)) as engine:
        yield engine


@pytest.fixture
def engine(running_engine: EngineThread) -> Iterator[EngineThread]:
    running_engine.reset()
    yield running_engine
    running_engine.thaw()
    wait_until(lambda: running_engine.state()["running"] == 0, "the engine's slots to be free")


# A call that works.


def test_an_answer_is_an_attempt_with_a_label_and_what_it_cost(engine: EngineThread) -> None:
    attempt = attempt_at(engine.base_url)
    (row,) = engine.log()
    label = expected_label(TICKET, LABELS)
    assert (attempt.symptom, attempt.label, attempt.detail) == (None, label, "")
    assert json.loads(attempt.raw or "") == {"label": label}
    assert attempt.usage == Usage(row.prompt_tokens, row.output_tokens)
    assert (attempt.pool, attempt.model, attempt.http_status) == ("gpu", "test-model", 200)
    assert attempt.ttft_seconds is not None
    assert 0 < attempt.ttft_seconds <= attempt.seconds
    assert abs(attempt.started_at - datetime.now(UTC)) < timedelta(seconds=30)
    assert (row.outcome, row.stream, row.max_tokens) == ("ok", True, 32)


def test_the_first_token_is_reported_once_while_the_answer_still_comes(engine: EngineThread) -> None:
    engine.set_faults(Rule(Fault("stall", after_tokens=2)))

    async def call() -> tuple[int, Attempt]:
        told: list[float] = []
        loop = asyncio.get_running_loop()
        async with client_of(engine.base_url, timeout_seconds=0.5) as client:
            attempt = await ask(client, on_first_token=lambda: told.append(loop.time()))
        assert loop.time() - told[0] > 0.2
        return len(told), attempt

    told, attempt = asyncio.run(call())
    assert told == 1
    assert attempt.symptom is Symptom.TIMED_OUT


def test_the_request_carries_the_key_and_nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_API_KEY", "sk-right")
    monkeypatch.setenv("OPENAI_ORG_ID", "someone")
    with EngineThread(EngineProfile.instant(), ServiceSettings(api_key="sk-right")) as engine:

        async def call() -> Attempt:
            async with client_of(engine.base_url, key=Secret(env="LLM_API_KEY")) as client:
                return await ask(client)

        assert asyncio.run(call()).symptom is None
        (row,) = engine.log()
    assert row.headers.pop("user-agent").startswith("AsyncOpenAI/")
    assert row.headers == {"authorization": "Bearer sk-right"}


def test_without_a_key_none_is_taken_from_the_environment(
    engine: EngineThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-for-another-service")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert attempt_at(engine.base_url).symptom is None
    (row,) = engine.log()
    assert "authorization" not in row.headers


def test_proxies_of_the_environment_are_not_used(engine: EngineThread, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    assert attempt_at(engine.base_url).symptom is None


def test_a_base_url_that_is_none_is_a_settings_error() -> None:
    pool = Pool.model_validate(
        {"name": "gpu", "base_url": "http://host:port/v1", "model": "m", "capacity": {"slots": 1}}
    )
    with pytest.raises(SettingsError, match="pool gpu: base_url 'http://host:port/v1' is not a URL"):
        ModelClient(pool, at_once=1)


# Time.


@pytest.mark.parametrize("kind", ["slow_first_token", "stall"])
def test_the_deadline_is_total_and_frees_the_engine(engine: EngineThread, kind: str) -> None:
    engine.set_faults(Rule(Fault(kind, seconds=60.0)))
    attempt = attempt_at(engine.base_url, timeout_seconds=0.3)
    assert attempt.symptom is Symptom.TIMED_OUT
    assert 0.3 <= attempt.seconds < 2.0
    wait_until(lambda: engine.state()["running"] == 0, "the slot to be free again", timeout_seconds=2.0)


# A call that is withdrawn.


def withdrawn_when(engine: EngineThread, ready: Callable[[InFlight], object]) -> tuple[Attempt, float]:
    """Cancel a call as soon as `ready`; the attempt it makes and the seconds until it was over."""

    async def call() -> tuple[Attempt, float]:
        loop = asyncio.get_running_loop()
        async with client_of(engine.base_url) as client:
            in_flight = InFlight()
            task = asyncio.ensure_future(ask(client, in_flight=in_flight))
            await wait_until_async(lambda: ready(in_flight), "the call to be where it is to be cancelled")
            began = loop.time()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return client.withdrawn(in_flight, Symptom.WITHDRAWN, "users came first"), loop.time() - began

    return asyncio.run(call())


def test_a_call_withdrawn_in_the_queue_is_out_of_it_at_once(engine: EngineThread) -> None:
    engine.freeze()
    attempt, seconds = withdrawn_when(engine, lambda _: engine.state()["waiting"] == 1)
    assert seconds < 1.5
    assert (attempt.symptom, attempt.detail) == (Symptom.WITHDRAWN, "users came first")
    assert (attempt.ttft_seconds, attempt.usage, attempt.raw) == (None, Usage(0, 0), None)
    engine.thaw()
    wait_until(lambda: [row.outcome for row in engine.log()] == ["aborted"], "the engine to notice")


def test_a_call_withdrawn_in_its_prefill_frees_the_slot(engine: EngineThread) -> None:
    engine.set_faults(Rule(Fault("slow_first_token", seconds=60.0)))
    attempt, seconds = withdrawn_when(engine, lambda _: engine.state()["running"] == 1)
    assert seconds < 1.5
    assert (attempt.ttft_seconds, attempt.http_status) == (None, 200)
    wait_until(lambda: engine.state()["running"] == 0, "the slot to be free again", timeout_seconds=2.0)


def test_a_call_withdrawn_while_it_streams_tells_what_was_wasted(engine: EngineThread) -> None:
    engine.set_faults(Rule(Fault("stall", after_tokens=3)))
    attempt, seconds = withdrawn_when(engine, lambda call: call.tokens == 3)
    assert seconds < 1.5
    assert attempt.ttft_seconds is not None
    assert attempt.ttft_seconds <= attempt.seconds
    assert attempt.usage == Usage(0, 3)
    wait_until(lambda: engine.state()["running"] == 0, "the slot to be free again", timeout_seconds=2.0)


def test_an_engine_that_notices_late_does_not_hold_up_the_withdrawal(engine: EngineThread) -> None:
    engine.set_faults(Rule(Fault("late_abort", seconds=2.0), text="Parcel"))
    engine.set_profile(step_base_seconds=1.0)
    try:
        _, seconds = withdrawn_when(engine, lambda _: engine.state()["running"] == 1)
    finally:
        engine.set_profile(step_base_seconds=EngineProfile().at_speed(50).step_base_seconds)
    assert seconds < 1.5


def test_a_call_that_was_never_begun_can_be_withdrawn(engine: EngineThread) -> None:
    async def call() -> Attempt:
        async with client_of(engine.base_url) as client:
            return client.withdrawn(InFlight(), Symptom.STOPPING)

    attempt = asyncio.run(call())
    assert (attempt.symptom, attempt.seconds, attempt.usage) == (Symptom.STOPPING, 0.0, Usage())


def test_a_lane_is_free_again_after_every_kind_of_end(engine: EngineThread) -> None:
    async def call() -> None:
        async with client_of(engine.base_url, at_once=1, timeout_seconds=0.3) as client:
            for fault in ["500", "white_space", "drop_before_headers", "drop_mid_stream", "stall", "cut_off"]:
                await ask(client, f"{BODY} [[fault:{fault}]]")
            task = asyncio.ensure_future(ask(client, f"{BODY} [[fault:stall]]"))
            await wait_until_async(lambda: engine.state()["running"] == 1, "the call to be in the engine")
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert (await ask(client)).symptom is None

    asyncio.run(call())


@pytest.mark.parametrize("turns", range(3))
def test_a_call_that_is_cancelled_twice_leaves_no_half_closed_connection(engine: EngineThread, turns: int) -> None:
    async def call() -> None:
        async with client_of(engine.base_url, at_once=1, timeout_seconds=2.0) as client:
            in_flight = InFlight()
            task = asyncio.ensure_future(ask(client, f"{BODY} [[fault:stall]]", in_flight=in_flight))
            await wait_until_async(lambda: in_flight.tokens, "the answer to begin")
            task.cancel()
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()  # while the first cancellation closes the connection, after so many turns of the loop
            await asyncio.gather(task, return_exceptions=True)
            await wait_until_async(lambda: engine.state()["running"] == 0, "the slot to be free again")
            assert (await ask(client)).symptom is None

    asyncio.run(call())
