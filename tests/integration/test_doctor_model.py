"""What `doctor` says of a model, by asking the test's engine in every mood, and the real llama.cpp server."""

import asyncio
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise

import pytest

from jobs.spec import ClassificationSpec
from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.faults import Fault, Rule
from tests.engine.process import EngineThread
from tests.integration.test_demo_engine import running
from tests.support.balancer import Buffering
from tests.support.canned import CannedServer, whole
from tests.support.engines import chat_body, is_running, start
from tests.support.shift import pool_settings
from tests.support.wait import wait_until
from tickets_batch.cli.doctor import abort, model
from tickets_batch.cli.doctor.check import Check
from tickets_batch.demo import llama_server
from workers.served import EndpointUnavailable, Served, served

pytest_plugins = ["tests.support.engine_fixtures"]

SPEC = ClassificationSpec(labels={"billing": "charges", "shipping": "delivery"})
PARROT, COUNTING, SAMPLE = "Say your word", "Count from one", "nine days ago"


@pytest.fixture
def engine() -> Iterator[EngineThread]:
    """Ten milliseconds a token, so that a long answer can be cut."""
    with EngineThread(EngineProfile(slots=4, step_base_seconds=0.01, policy="priority")) as engine:
        yield engine


def found(base_url: str, **changes: object) -> dict[str, Check]:
    """The checks of a pool there by what they are about, without the pool's name."""
    checks = list(model.examine(SPEC, pool_settings(base_url, **changes)))
    return {check.about.removeprefix("pool gpu").strip(): check for check in checks}


def test_a_model_as_it_should_be(engine: EngineThread) -> None:
    checks = found(engine.base_url)
    assert {name: check.level for name, check in checks.items()} == {"": "ok", "schema": "ok", "abort": "ok"}
    assert checks[""].words.startswith(f"test-model at {engine.base_url} answered a sample ticket with '")
    assert checks["schema"].words == "enforced: told to say something else, the model kept to the labels"
    assert checks["abort"].words.startswith("a request that is cut leaves its slot within 0.")


def test_it_asks_little_and_one_thing_at_a_time(engine: EngineThread) -> None:
    found(engine.base_url)
    rows = engine.log()
    assert len(rows) == 3
    assert {row.priority for row in rows} == {1}  # behind the chat
    assert sum(row.output_tokens for row in rows) < 200
    for earlier, later in pairwise(rows):
        assert earlier.ended_at is not None
        assert earlier.ended_at <= later.arrived_at


class TestSchema:
    @pytest.mark.parametrize("kind", ["ignore_response_format", "prose", "fenced", "list", "wrong_label"])
    def test_taken_but_not_kept_to(self, engine: EngineThread, kind: str) -> None:
        engine.set_faults(Rule(Fault(kind), text=PARROT))
        check = found(engine.base_url)["schema"]
        assert check.level == "warning"
        assert check.words.startswith("taken but not enforced: told to say something else, the model did.")
        assert check.words.endswith("switch structured outputs on in the engine")

    @pytest.mark.parametrize("kind", ["cut_off", "white_space", "empty", "reasoning_only"])
    def test_what_is_cut_short_or_empty_proves_nothing(self, engine: EngineThread, kind: str) -> None:
        engine.set_faults(Rule(Fault(kind), text=PARROT))
        check = found(engine.base_url)["schema"]
        assert check.level == "warning"
        assert check.words.startswith("not clear whether it is enforced (")

    def test_a_refusal_of_the_moment(self, engine: EngineThread) -> None:
        engine.set_faults(Rule(Fault("429", retry_after_seconds=1), text=PARROT))
        check = found(engine.base_url)["schema"]
        assert (check.level, check.words.partition(":")[0]) == ("warning", "could not be tried (overloaded")

    def test_an_engine_that_takes_none_fails_the_night(self, engine: EngineThread) -> None:
        engine.set_faults(Rule(Fault("schema_refused")))
        checks = found(engine.base_url)
        assert list(checks) == [""]
        assert checks[""].level == "problem"
        assert "the engine refuses the schema of the answer" in checks[""].words


class TestAbort:
    def test_one_that_frees_the_slot_late(self, engine: EngineThread) -> None:
        engine.set_faults(Rule(Fault("late_abort", seconds=1.0), text=COUNTING))
        check = found(engine.base_url)["abort"]
        assert check.level == "warning"
        assert ", later than the 0.3 s for which its room is kept" in check.words

    def test_one_that_goes_on(self, engine: EngineThread, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(abort, "FREED_SECONDS", 0.5)
        engine.set_faults(Rule(Fault("late_abort", seconds=30.0), text=COUNTING))
        check = found(engine.base_url)["abort"]
        assert check.level == "warning"
        assert check.words.startswith(
            "a request that was cut still ran after 0.5 s, unless others came meanwhile: what is"
        )

    def test_beside_others_it_is_not_certain(self, engine: EngineThread) -> None:
        with start(engine, chat_body(3_000)):
            wait_until(is_running(engine), "somebody else's request to run")
            check = found(engine.base_url)["abort"]
        assert (check.level, "(others were at work" in check.words) == ("ok", True)

    def test_without_metrics_it_cannot_be_seen(self, engine: EngineThread) -> None:
        engine.change_settings(metrics_gone=True)
        check = found(engine.base_url)["abort"]
        assert check.level == "warning"
        assert "cannot be seen" in check.words
        assert "answers 404" in check.words
        assert len(engine.log()) == 2  # nothing is begun for it

    def test_of_an_engine_that_shows_none_there_is_nothing_to_see(self, engine: EngineThread) -> None:
        check = found(engine.base_url, engine="openai")["abort"]
        assert (check.level, check.words) == (
            "ok",
            "whether a request that is cut leaves its slot cannot be seen: openai shows no metrics",
        )

    def test_one_that_is_refused_is_told(self, engine: EngineThread) -> None:
        engine.set_faults(Rule(Fault("500"), text=COUNTING))
        check = found(engine.base_url)["abort"]
        assert (check.level, "was not seen: it came to server_error (HTTP 500" in check.words) == ("warning", True)

    def test_an_answer_that_is_over_at_once_cannot_be_cut(self, instant_engine: EngineThread) -> None:
        check = found(instant_engine.base_url)["abort"]
        assert (check.level, check.words.partition(":")[0]) == (
            "warning",
            "whether a request that is cut leaves its slot was not seen",
        )


class TestWhatElseIsWrong:
    def test_no_usage_in_the_stream(self, engine: EngineThread) -> None:
        engine.set_faults(Rule(Fault("missing_usage")))
        check = found(engine.base_url)["usage"]
        assert check.level == "warning"
        assert "stream_options.include_usage" in check.words

    @pytest.mark.long
    def test_an_answer_that_comes_in_one_piece(self, engine: EngineThread) -> None:
        async def at_proxy() -> dict[str, Check]:
            async with Buffering([engine.port]) as proxy:
                return await asyncio.to_thread(found, proxy.base_url)

        check = asyncio.run(at_proxy())["stream"]
        assert check.level == "warning"
        assert check.words.startswith("an answer of 16 tokens came in one piece after ")
        assert "proxy_buffering off" in check.words

    def test_a_short_answer_in_one_piece_says_nothing_where_a_longer_one_comes_in_pieces(
        self, engine: EngineThread
    ) -> None:
        async def at_proxy() -> dict[str, Check]:
            async with Buffering([engine.port], most_bytes=2_000) as proxy:
                return await asyncio.to_thread(found, proxy.base_url)

        checks = asyncio.run(at_proxy())
        assert len(engine.log()) == 4
        assert "stream" not in checks

    def test_no_priority(self) -> None:
        with EngineThread(
            EngineProfile(slots=4, step_base_seconds=0.01, policy="fcfs", refuses_priority=True)
        ) as engine:
            checks = found(engine.base_url)
        assert checks["priority"].level == "warning"
        assert (checks[""].level, checks["schema"].level) == ("ok", "ok")

    def test_another_model_than_it_serves(self, engine: EngineThread) -> None:
        checks = found(engine.base_url, model="other-model")
        assert list(checks) == [""]
        assert checks[""].level == "problem"
        assert "the engine does not serve this model" in checks[""].words
        assert checks[""].words.endswith("; it lists test-model")

    def test_a_key_that_it_does_not_take(self, engine: EngineThread) -> None:
        engine.change_settings(api_key="right")
        checks = found(engine.base_url)
        assert [check.level for check in checks.values()] == ["problem"]
        assert "set the pool's api_key" in checks[""].words
        assert checks[""].words.count("401") == 1

    def test_nobody_there(self) -> None:
        [check] = found("http://127.0.0.1:9/v1").values()
        assert check.level == "problem"
        assert check.words.startswith("http://127.0.0.1:9/v1: unreachable")

    def test_a_key_that_is_not_set(self, engine: EngineThread, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("NO_SUCH_KEY", raising=False)
        [check] = found(engine.base_url, api_key={"env": "NO_SUCH_KEY"}).values()
        assert (check.level, "NO_SUCH_KEY is not set" in check.words) == ("problem", True)

    def test_one_that_takes_connections_and_says_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(model, "LIST_SECONDS", 0.2)
        monkeypatch.setattr(model, "ANSWER_SECONDS", 0.3)
        began = time.monotonic()
        with socket.create_server(("127.0.0.1", 0)) as silent:
            [check] = found(f"http://127.0.0.1:{silent.getsockname()[1]}/v1").values()
        assert (check.level, "timed_out" in check.words) == ("problem", True)
        assert time.monotonic() - began < model.POOL_SECONDS

    def test_what_has_no_time_left_is_not_tried(self, engine: EngineThread, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(model, "POOL_SECONDS", 0.0)
        checks = found(engine.base_url)
        assert {name: check.level for name, check in checks.items()} == {"": "warning"}
        assert checks[""].words.startswith("not tried: ")

    @pytest.mark.parametrize(
        ("kind", "level", "to_do"),
        [
            ("prose", "problem", "switch structured outputs on"),
            ("500", "problem", "its log says why"),
            ("drop_mid_stream", "problem", "or that of a proxy"),
            ("content_filter", "problem", "as harmless as the sample"),
            ("context_too_long", "problem", "with a longer context"),
            ("503", "warning", "when it is less busy"),
        ],
    )
    def test_what_the_sample_meets_says_what_to_do(
        self, engine: EngineThread, kind: str, level: str, to_do: str
    ) -> None:
        engine.set_faults(Rule(Fault(kind), text=SAMPLE))
        [check] = found(engine.base_url).values()
        assert (check.level, to_do in check.words) == (level, True), check.words


class TestServed:
    def test_models_and_clock(self) -> None:
        date = f"date: {format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)}"
        found = asyncio.run(self._canned(whole(200, b'{"data": [{"id": "a"}, {"id": "b"}]}', "application/json", date)))
        assert found.models == ("a", "b")
        assert found.ahead_seconds == pytest.approx(90, abs=5)

    @pytest.mark.parametrize("body", [b"", b"[]", b'{"data": [1]}', b'{"data": 1}', b"<html>", b"\xff"])
    def test_no_list(self, body: bytes) -> None:
        found = asyncio.run(self._canned(whole(200, body)))
        assert (found.models, found.ahead_seconds) == (None, None)

    def test_no_such_path(self) -> None:
        assert asyncio.run(self._canned(whole(404, b'{"data": [{"id": "a"}]}'))).models is None

    def test_nobody_there(self) -> None:
        with pytest.raises(EndpointUnavailable, match=r"127\.0\.0\.1:9/v1/models cannot be reached .*: check base_url"):
            asyncio.run(served(pool_settings("http://127.0.0.1:9/v1"), 5.0))

    @staticmethod
    async def _canned(answer: bytes) -> Served:
        async with CannedServer(answer, close=True) as server:
            return await served(pool_settings(server.base_url), 5.0)


@pytest.mark.timeout(300)
@pytest.mark.long
def test_the_real_server_of_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "ANSWER_SECONDS", 60.0)  # other tests may be using the processor
    monkeypatch.setattr(model, "POOL_SECONDS", 120.0)
    with running() as (_, url):
        checks = found(url, engine="llama.cpp", model=llama_server.MODEL)
    assert {name: check.level for name, check in checks.items()} == {"": "ok", "schema": "ok", "abort": "ok"}
