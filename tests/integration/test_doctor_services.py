"""What `doctor` says of Redis, the broker, clocks, disk, sink and webhook; and that the whole of it is bounded."""

import json
import socket
import sqlite3
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from jobs.outcomes import Requeued, Symptom
from jobs.store import curves, overloads, schema
from jobs.store import database as database_module
from jobs.store.database import Database
from scheduler.simulation.engine.profile import EngineProfile
from scheduler.simulation.fitted import played
from tests.engine.process import EngineThread
from tests.support.in_process import directory
from tests.support.store import attempt, claim, finish, submit
from tests.support.valkey import ValkeyServer
from tickets_batch.cli.doctor import clocks, house, redis_server, stored
from tickets_batch.cli.doctor.check import Check, tried
from tickets_batch.cli.doctor.engine_advice import NOTHING, PrefillRate, second_line
from tickets_batch.cli.run import run
from tickets_batch.settings import Gateway, Pool, Settings
from workers.priority import PRIORITIES

pytestmark = pytest.mark.long

pytest_plugins = ["tests.support.engine_fixtures"]

WELL = {
    "redis_version": "7.2.4",
    "valkey_version": "8.1.1",
    "redis_mode": "standalone",
    "role": "master",
    "loading": 0,
    "maxmemory": 0,
    "used_memory": 1_000_000,
    "maxmemory_policy": "noeviction",
    "aof_enabled": 1,
    "aof_last_write_status": "ok",
    "rdb_last_bgsave_status": "ok",
}


def pool(**changes: Any) -> Pool:
    values = {"name": "gpu", "base_url": "http://127.0.0.1:9/v1", "model": "test-model", "capacity": {"slots": 20}}
    return Pool.model_validate({**values, "engine": "vllm", **changes})


class TestRedis:
    @pytest.mark.parametrize(
        ("changes", "level", "words"),
        [
            ({}, "ok", "Valkey 8.1.1, noeviction, keeps its data in an append-only file"),
            ({"aof_enabled": 0}, "ok", "Valkey 8.1.1, noeviction, does not say whether it keeps snapshots: after a"),
            ({"aof_enabled": 0, "save": "60 1"}, "ok", "Valkey 8.1.1, noeviction, keeps snapshots: after a restart"),
            ({"valkey_version": None, "redis_version": "6.0.16"}, "problem", "Redis 6.0.16 is too old: 6.2 is needed"),
            ({"valkey_version": None, "redis_version": "6.2.0"}, "ok", "Redis 6.2.0, noeviction"),
            ({"maxmemory_policy": "allkeys-lru", "maxmemory": 9}, "problem", "has maxmemory-policy allkeys-lru: set"),
            ({"maxmemory_policy": "allkeys-lru"}, "warning", "has maxmemory-policy allkeys-lru and, as yet, no"),
            ({"maxmemory": 1_050_000}, "warning", "Valkey 8.1.1 has 95% of its maxmemory in use"),
            ({"rdb_last_bgsave_status": "err"}, "problem", "could not save its data and therefore refuses writes"),
            ({"aof_last_write_status": "err"}, "problem", "could not save its data and therefore refuses writes"),
            ({"role": "slave"}, "problem", "is a replica, which takes no writes: point redis_url at its primary"),
            ({"redis_mode": "cluster"}, "problem", "runs as a cluster"),
            ({"loading": 1}, "problem", "still loading"),
        ],
    )
    def test_what_its_info_means(self, changes: dict[str, Any], level: str, words: str) -> None:
        check = tried("redis", lambda info: redis_server.judged(info, is_embedded=False), {**WELL, **changes})
        assert check.level == level
        assert words in check.words

    def test_a_real_one(self, valkey: ValkeyServer) -> None:
        check = tried("redis", redis_server.server, Settings(redis_url=valkey.url))
        assert check.level == "ok"
        assert check.words.startswith("Valkey ")
        assert ", noeviction, keeps nothing on disk: after a restart" in check.words

    def test_a_real_one_that_would_forget(self, valkey: ValkeyServer) -> None:
        with valkey.client() as client:
            client.config_set("maxmemory", "100mb")
            client.config_set("maxmemory-policy", "allkeys-lru")
            try:
                check = tried("redis", redis_server.server, Settings(redis_url=valkey.url))
            finally:
                client.config_set("maxmemory-policy", "noeviction")
                client.config_set("maxmemory", "0")
        assert check.level == "problem"
        assert "set maxmemory-policy noeviction" in check.words

    def test_nobody_there(self) -> None:
        check = tried("redis", redis_server.server, Settings(redis_url="redis://127.0.0.1:9/0"))
        assert check.level == "problem"
        assert check.words == "Redis does not answer (ConnectionError): check redis_url and the server"

    def test_a_password_that_it_does_not_take(self, valkey: ValkeyServer) -> None:
        settings = Settings(redis_url=valkey.url.replace("redis://", "redis://somebody:wrong@"))
        check = tried("redis", redis_server.server, settings)
        assert check.level == "problem"
        assert "mend redis_url" in check.words
        assert "wrong" not in check.words

    def test_the_broker_and_its_queue(self, valkey: ValkeyServer) -> None:
        settings = Settings(redis_url=valkey.url)
        assert tried("broker", redis_server.broker, settings) == Check(
            "broker", "ok", "answers, 0 tasks wait in tickets-batch"
        )
        with valkey.client() as client:
            client.rpush("tickets-batch:celery:tickets-batch", *["{}"] * 1_001)
        check = tried("broker", redis_server.broker, settings)
        assert (check.level, check.words.startswith("1,001 tasks wait in tickets-batch")) == ("warning", True)

    def test_a_broker_that_is_away(self) -> None:
        check = tried("broker", redis_server.broker, Settings(redis_url="redis://127.0.0.1:9/0"))
        assert check.level == "problem"
        assert check.words.startswith("the broker does not answer")


class TestClocks:
    def test_those_of_real_servers_are_this_machines(self, valkey: ValkeyServer, postgresql_url: str) -> None:
        settings = Settings(redis_url=valkey.url, database_url=postgresql_url)
        [check] = clocks.differences(settings, has_database=True, has_redis=True)
        assert check.level == "ok"
        assert check.words.startswith("the database's clock is within 0.")
        assert " and Redis' clock is within 0." in check.words

    def test_sqlite_has_none_of_its_own(self, sqlite_url: str) -> None:
        assert list(clocks.differences(Settings(database_url=sqlite_url), has_database=True, has_redis=False)) == []

    @pytest.mark.parametrize(
        ("seconds", "level", "words"),
        [
            (-1.9, "ok", "x is within 1.9 s of this machine's"),
            (5.0, "warning", "x is 5 s ahead of this machine's: set them right (NTP)"),
            (-3_600.0, "problem", "x is 3,600 s behind this machine's: set them right (NTP)"),
        ],
    )
    def test_how_far_is_too_far(self, seconds: float, level: str, words: str) -> None:
        check = clocks.judged({"x": seconds})
        assert check.level == level
        assert check.words.startswith(words)


class TestHouse:
    Usage = namedtuple("Usage", "total used free")

    @pytest.mark.parametrize(
        ("free", "level", "words"),
        [(50e9, "ok", "50.0 GB free in "), (5e8, "warning", "only 500 MB free in "), (1e6, "problem", "only 1 MB")],
    )
    def test_disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: float, level: str, words: str) -> None:
        monkeypatch.setattr("tickets_batch.cli.doctor.house.shutil.disk_usage", lambda _: self.Usage(0, 0, int(free)))
        check = tried("disk", house.disk, Settings(home=tmp_path / "not" / "made"))
        assert (check.level, check.words.startswith(words)) == (level, True)

    def test_files(self, monkeypatch: pytest.MonkeyPatch) -> None:
        capacity = {"slots": 1000, "tokens": 1_000_000}
        pools = [{"name": name, "base_url": "http://x/v1", "model": "m", "capacity": capacity} for name in ("a", "b")]
        settings = Settings(pool=pools, worker={"at_once": 300})
        for most, level in ((600 + 256, "ok"), (600 + 255, "warning"), (None, "ok")):
            monkeypatch.setattr("tickets_batch.local.open_files.allowed", lambda most=most: most)
            check = tried("files", house.files, settings)
            assert check.level == level
            assert check.words.startswith("a worker process ")
        with_gateway = settings.model_copy(update={"gateway": Gateway(max_connections=500)})
        monkeypatch.setattr("tickets_batch.local.open_files.allowed", lambda: 1000)
        assert tried("files", house.files, with_gateway).words == (
            "the gateway needs 1256 open files, and 1000 are allowed: raise ulimit -n, or ask for less at once"
        )

    def test_a_deadline_in_no_zone(self) -> None:
        check = house.time_and_zone(Settings(deadline="07:00"))
        assert (check.level, "set timezone" in check.words) == ("warning", True)
        assert house.time_and_zone(Settings(deadline="07:00", timezone="UTC")).level == "ok"
        assert house.time_and_zone(Settings()).level == "ok"

    def test_sink(self, tmp_path: Path) -> None:
        with sqlite3.connect(tmp_path / "theirs.db") as theirs:
            theirs.execute("CREATE TABLE other (id TEXT PRIMARY KEY)")
        theirs.close()
        table = {"url": f"sqlite:///{tmp_path}/theirs.db", "table": "labels"}
        check = tried("sink", house.sink, Settings.model_validate({"sink": table}))
        assert check.level == "problem"
        assert "there is no table labels" in check.words
        assert "CREATE TABLE labels" in check.words
        assert tried("sink", house.sink, Settings()).level == "ok"

    def test_webhook(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def check(url: str) -> Check:
            monkeypatch.setenv("HOOK", url)
            return tried("webhook", house.webhook, Settings.model_validate({"alert": {"webhook": {"env": "HOOK"}}}))

        with socket.create_server(("127.0.0.1", 0)) as hook:
            port = hook.getsockname()[1]
            assert check(f"http://127.0.0.1:{port}/secret").words == (
                f"127.0.0.1:{port} takes connections; nothing was sent"
            )
        gone = check(f"http://127.0.0.1:{port}/secret")
        assert (gone.level, "secret" in gone.words) == ("warning", False)
        assert check("not a URL").level == "problem"
        assert tried("webhook", house.webhook, Settings()).level == "ok"
        assert tried("webhook", house.webhook, Settings(deadline="07:00")).level == "warning"


class TestAdvice:
    def test_vllm_with_what_was_measured(self) -> None:
        words = second_line(pool(ttft_target_seconds=0.5), PrefillRate(12_000, "as measured on 2026-11-30"))
        assert "--max-num-queued-tokens 6000: 0.5 s, the target, x 12,000 prompt tokens a second as measured" in words
        assert "--scheduling-policy priority, where the lower number goes first (batch sends 1," in words
        assert PRIORITIES["vllm"] == 1

    def test_vllm_with_nothing_measured(self) -> None:
        words = second_line(pool(), None)
        assert "--max-num-queued-tokens of about 0.8 s, the target, x the prompt tokens" in words
        assert "plan --measure" in words

    def test_the_sign_is_sglangs_own(self) -> None:
        words = second_line(pool(engine="sglang"), None)
        assert "--enable-priority-scheduling, where the higher number goes first (batch sends the lowest" in words
        assert "never with --schedule-low-priority-values-first" in words
        assert PRIORITIES["sglang"] == -(2**63)

    def test_of_others(self) -> None:
        assert "--max-concurrent-requests 20" in second_line(pool(engine="tgi"), None)
        assert "--parallel 20" in second_line(pool(engine="llama.cpp"), None)
        assert second_line(pool(engine="openai"), None) == NOTHING
        assert second_line(pool(engine="tensorrt-llm"), None) == NOTHING

    def test_the_rate_is_that_of_the_last_measurement(self, sqlite_url: str) -> None:
        settings = Settings(database_url=sqlite_url, pool=(pool(),))
        assert stored.prefill_rates(settings) == {}
        db = Database.open(sqlite_url)
        profile = EngineProfile(prefill_token_seconds=1e-4)
        curve = played(profile, [1, 2, 4, 8, 16], 500, 20)
        curves.save(db, "gpu", "test-model", curve.as_json())
        assert stored.prefill_rates(settings)["gpu"].tokens_per_second == pytest.approx(10_000, rel=0.3)
        curves.save(db, "gpu", "another model", curve.as_json())
        assert stored.prefill_rates(settings) == {}
        curves.save(db, "gpu", "test-model", {"of": "another version"})
        assert stored.prefill_rates(settings) == {}
        db.dispose()


class TestOverloads:
    def test_what_was_seen_is_told(self, database: Database) -> None:
        settings = Settings(database_url=database.url.render_as_string(hide_password=False), pool=(pool(),))
        assert "is unknown: it was not seen overloaded lately" in stored.overloads(settings)["gpu"]
        batch = submit(database, 3).batch_id
        named = attempt(Symptom.OVERLOADED, http_status=429, retry_after_seconds=2.0)
        finish(database, claim(database, batch, 1), Requeued(), named)
        finish(database, claim(database, batch, 1), Requeued(), attempt(Symptom.OVERLOADED, http_status=503))
        finish(database, claim(database, batch, 1), Requeued(), attempt(Symptom.SERVER_ERROR, http_status=500))

        assert overloads.of_pool(database, "gpu") == overloads.Overloads(2, 1)
        assert stored.overloads(settings)["gpu"].startswith("of its last 2 answers that it was overloaded")
        assert overloads.of_pool(database, "another") == overloads.Overloads(0, 0)


class TestWhole:
    @pytest.fixture
    def settings(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
        text = """
        [source]
        path = "tickets.csv"
        [classification.labels]
        billing = "charges"
        shipping = "delivery"
        [[pool]]
        name = "gpu"
        base_url = "{base_url}"
        model = "test-model"
        engine = "vllm"
        capacity = {{ slots = 4 }}
        [[pool.signal]]
        type = "engine"
        """
        with directory(tmp_path, monkeypatch, ""):
            Path("tickets.csv").write_text("id,created_at,subject,body\nT1,2026-11-30 09:00,Late,Where?\n")
            yield text

    def test_all_is_well(self, settings: str, valkey: ValkeyServer, capsys: pytest.CaptureFixture[str]) -> None:
        first = f'redis_url = "{valkey.url}"\n'
        with EngineThread(EngineProfile(slots=4, step_base_seconds=0.01)) as engine:  # its answers come in pieces
            Path("tickets-batch.toml").write_text(first + settings.format(base_url=engine.base_url))
            code = run(["doctor", "--json"])
        shown = json.loads(capsys.readouterr().out)
        assert (code, shown["ok"]) == (0, True)
        assert [check["about"] for check in shown["checks"]] == [
            *("time", "home", "disk", "files", "database", "redis", "broker", "clock", "services", "labels"),
            *(
                "source",
                "sink",
                "webhook",
                "pool gpu",
                "pool gpu schema",
                "pool gpu abort",
                "pool gpu overload",
                "pool gpu engine",
            ),
            "pool gpu defence",
        ]

    def test_a_database_that_takes_connections_and_says_nothing(
        self,
        settings: str,
        instant_engine: EngineThread,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setattr(database_module, "CONNECT_SECONDS", 2)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            first = f'database_url = "postgresql+psycopg://user@127.0.0.1:{silent.getsockname()[1]}/tickets"\n'
            Path("tickets-batch.toml").write_text(first + settings.format(base_url=instant_engine.base_url))
            assert run(["doctor"]) == 1
        [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("problem")]
        assert "cannot use the database postgresql+psycopg://user@127.0.0.1" in line

    def test_the_database_under_home_is_upgraded_by_the_next_submit(
        self, settings: str, instant_engine: EngineThread, sqlite_url: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        db = Database.open(sqlite_url)
        with db.begin() as connection:
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0001'")
        db.dispose()
        Path(str(db.url.database)).rename("tickets-batch.db")
        Path("tickets-batch.toml").write_text('home = "."\n' + settings.format(base_url=instant_engine.base_url))
        assert run(["doctor"]) == 0
        assert f": the next submit brings it to version {schema.VERSION}" in capsys.readouterr().out

    def test_a_database_of_another_version_fails_and_is_asked_no_more(
        self, settings: str, instant_engine: EngineThread, sqlite_url: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        db = Database.open(sqlite_url)
        with db.begin() as connection:
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0001'")
            assert connection.execute(select(1)).scalar() == 1
        db.dispose()
        first = f'database_url = "{sqlite_url}"\n'
        Path("tickets-batch.toml").write_text(first + settings.format(base_url=instant_engine.base_url))
        assert run(["doctor"]) == 1
        lines = capsys.readouterr().out.splitlines()
        [line] = [line for line in lines if line.startswith("problem")]
        assert f"version 0001, this program needs {schema.VERSION}: run tickets-batch db upgrade" in line
        assert not any(line.split()[1] == "services" for line in lines)
