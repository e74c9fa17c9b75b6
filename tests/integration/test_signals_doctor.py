"""What `doctor` says of the sources, and when it fails for them."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from scheduler.ledger import Ledger
from scheduler.pools import capacity_of
from tests.engine.process import EngineThread
from tests.support.readings import snapshot
from tests.support.shift import pool_settings
from tests.support.valkey import ValkeyServer
from tickets_batch.cli.doctor.check import Check
from tickets_batch.cli.doctor.signals import BLIND, check_signals

pytest_plugins = ["tests.support.engine_fixtures"]

AWAY = "http://127.0.0.1:9/v1"
ABOUT = "pool gpu"


def checks(base_url: str, *signals: dict[str, Any], valkey: ValkeyServer | None = None, **changes: Any) -> list[Check]:
    pool = pool_settings(base_url, signal=signals, **changes)

    async def seen(valkey: ValkeyServer) -> Any:
        ledger = Ledger.connect(valkey.url, pool.name, capacity_of(pool))
        try:
            return await ledger.snapshot()
        finally:
            await ledger.aclose()

    return list(check_signals(pool, asyncio.run(seen(valkey)) if valkey else None))


def beat(valkey: ValkeyServer) -> None:
    async def step() -> None:
        ledger = Ledger.connect(valkey.url, "gpu", capacity_of(pool_settings(AWAY)))
        await ledger.beat()
        await ledger.aclose()

    asyncio.run(step())


def test_a_shared_pool_without_a_signal_is_blind() -> None:
    [check] = checks(AWAY)
    assert (check.about, check.level) == (ABOUT, "problem")
    assert check.words.startswith("blind: batch will stay at its floor")


def test_a_dedicated_pool_needs_none() -> None:
    everything = {"slots": 20, "tokens": 60_000}
    protected = {"interactive": {"slots": 0, "tokens": 0}, "batch": everything}
    [check] = checks(AWAY, capacity=everything, protected=protected)
    assert (check.level, check.words) == ("ok", "dedicated: all of it is batch's own, and no signal is needed")


class TestEngine:
    def test_one_that_shows_its_load(self, instant_engine: EngineThread) -> None:
        [check] = checks(instant_engine.base_url, {"type": "engine"})
        assert (check.about, check.level) == ("pool gpu engine", "ok")
        assert check.words == (
            f"{instant_engine.address}/metrics shows 0 requests running, 0 waiting, 0% of the KV cache in use"
        )

    def test_another_engines_page_names_what_is_missing_and_the_pool_is_blind(
        self, instant_engine: EngineThread
    ) -> None:
        missing, blind = checks(instant_engine.base_url, {"type": "engine"}, engine="llama.cpp")
        assert (missing.level, blind.level) == ("problem", "problem")
        assert missing.words == (
            f"{instant_engine.address}/metrics: llamacpp:requests_processing and llamacpp:requests_deferred missing: "
            "start llama-server with --metrics"
        )
        assert blind.words.startswith(BLIND)

    def test_one_source_that_works_is_enough_to_see(self, instant_engine: EngineThread) -> None:
        away = {"type": "engine", "url": "http://127.0.0.1:9/metrics"}
        assert [(check.about, check.level) for check in checks(instant_engine.base_url, away, {"type": "engine"})] == [
            ("pool gpu engine 1", "problem"),
            ("pool gpu engine 2", "ok"),
        ]

    def test_a_missing_key_is_a_problem_of_its_own(
        self, instant_engine: EngineThread, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("NO_SUCH_KEY", raising=False)
        first, _ = checks(instant_engine.base_url, {"type": "engine"}, api_key={"env": "NO_SUCH_KEY"})
        assert first.level == "problem"
        assert "NO_SUCH_KEY is not set" in first.words


class TestLedger:
    def test_a_gateway_that_beats(self, valkey: ValkeyServer) -> None:
        beat(valkey)
        [check] = checks(AWAY, {"type": "ledger"}, valkey=valkey)
        assert (check.level, check.words) == ("ok", "a gateway or guard beats, 0 chat requests in flight")

    def test_none_that_ever_did(self, valkey: ValkeyServer) -> None:
        silent, blind = checks(AWAY, {"type": "ledger"}, valkey=valkey)
        assert (silent.level, blind.level) == ("warning", "problem")
        assert silent.words.startswith("no gateway or guard has ever beaten: start tickets-batch gateway")
        assert blind.words.startswith(BLIND)

    def test_one_that_has_stopped(self) -> None:
        pool = pool_settings(AWAY, signal=[{"type": "ledger"}])
        silent, blind = check_signals(pool, snapshot(beat_age_seconds=42.0))
        assert (silent.level, blind.level) == ("warning", "problem")
        assert silent.words.startswith("the last gateway or guard was heard 42 s ago: start tickets-batch gateway")

    def test_where_no_redis_runs_yet_there_is_nothing_to_fail_for(self) -> None:
        [check] = checks(AWAY, {"type": "ledger"})
        assert check.level == "warning"
        assert "start tickets-batch gateway" in check.words


class TestOthers:
    def test_a_probe_says_how_long_it_waited(self, instant_engine: EngineThread) -> None:
        [check] = checks(instant_engine.base_url, {"type": "probe"})
        assert check.level == "ok"
        assert check.words.startswith("a request of one token was answered after 0.")

    def test_a_prometheus_that_is_not_set_up_says_what_to_set(self) -> None:
        first, blind = checks(AWAY, {"type": "prometheus"})
        assert (first.level, blind.level) == ("problem", "problem")
        assert first.words.startswith("prometheus has nothing to ask: set url and one of in_flight")


class TestCommand:
    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        for name in [name for name in os.environ if name.startswith("TICKETS_BATCH")]:
            monkeypatch.delenv(name)
        monkeypatch.chdir(tmp_path)
        (tmp_path / "tickets.csv").write_text("id,created_at,subject,body\nT1,2026-11-30 09:00,Late,Where?\n")
        return tmp_path

    @pytest.mark.parametrize(("signal", "code"), [("[[pool.signal]]\ntype = 'engine'", 0), ("", 1)])
    def test_a_blind_pool_alone_makes_it_fail(
        self,
        instant_engine: EngineThread,
        folder: Path,
        capsys: pytest.CaptureFixture[str],
        signal: str,
        code: int,
    ) -> None:
        from click.testing import CliRunner

        from tickets_batch.cli.frame import Call, command

        (folder / "tickets-batch.toml").write_text(
            f"""
            [source]
            path = "tickets.csv"
            [classification.labels]
            billing = "charges"
            shipping = "delivery"
            [[pool]]
            name = "gpu"
            base_url = "{instant_engine.base_url}"
            model = "test-model"
            engine = "vllm"
            capacity = {{ slots = 4 }}
            {signal}
            """
        )
        result = CliRunner().invoke(command, ["doctor", "--json"], obj=Call(), standalone_mode=False)
        shown = json.loads(result.stdout)
        problems = [check for check in shown["checks"] if check["level"] == "problem"]
        assert (result.return_value, shown["ok"]) == (code, not code), problems
        assert [check["words"].startswith(BLIND) for check in problems] == [True] * code
