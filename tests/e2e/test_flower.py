"""Flower as the pages start it, beside services at work: it shows which batch, to who may look, and no more."""

import signal
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.engine.process import EngineProcess
from tests.support.at_work import wait_until_at_work
from tests.support.flower import CONFIGURATION, PROGRAM, Flower, start_flower
from tests.support.night import Night
from tests.support.redis_watch import RedisWatch, without_ttl
from tests.support.wait import wait_until
from tickets_batch.local.ports import free_port

pytest.importorskip("flower")
pytestmark = [pytest.mark.rare, pytest.mark.timeout(180)]

WORD = "Zwetschgenknoedel"
DANGEROUS = (
    "/api/worker/shutdown/{worker}",
    "/api/worker/pool/grow/{worker}",
    "/api/worker/queue/cancel-consumer/{worker}",
    "/api/task/send-task/tickets_batch.work_on",
    "/api/task/async-apply/tickets_batch.work_on",
    "/api/task/revoke/{task}",
    "/api/task/rate-limit/tickets_batch.work_on",
)


@pytest.fixture
def flower(night: Night, steady_engine: EngineProcess) -> Flower:
    night.configure(steady_engine.base_url, processes=1)
    night.start("up")
    wait_until_at_work(night)
    started = start_flower(night)
    wait_until(started.answers, "Flower to answer", 30)
    return started


def test_it_shows_which_batch_and_nothing_of_its_tickets(night: Night, flower: Flower) -> None:
    night.tickets(f"{WORD}: where is parcel {number}?" for number in range(60))
    batch_id = night.run("submit", "--all", code=0).out.strip()
    wait_until(lambda: batch_id in str(flower.tasks()), "a task of the batch", 30)
    night.wait_until_done(60)
    wait_until(lambda: "SUCCESS" in str(flower.tasks()), "a task to end", 60)
    uuid, task = next(iter(flower.tasks().items()))
    assert task["name"] == "tickets_batch.work_on"
    assert batch_id in task["kwargs"]
    pages = [
        flower.ask(path).text for path in ("/workers", "/tasks", f"/task/{uuid}", "/api/tasks", "/broker", "/metrics")
    ]
    assert "tickets-batch@" in pages[0]
    assert batch_id in pages[2]
    assert [page for page in pages if WORD in page or "parcel" in page] == []


def test_redis_hears_no_ticket_s_text_and_keeps_nothing_when_it_has_gone(night: Night, flower: Flower) -> None:
    url = night.redis_url()
    assert url
    with RedisWatch(url) as watch:
        night.tickets(f"{WORD}: where is parcel {number}?" for number in range(30))
        batch_id = night.run("submit", "--all", code=0).out.strip()
        night.wait_until_done(30)
        wait_until(lambda: batch_id in str(flower.tasks()), "a task of the batch", 30)
        flower.ask("/workers?refresh=1")
        flower.command.send(signal.SIGTERM)
        flower.command.wait(20)
        assert batch_id.encode() in watch.heard
        assert WORD.encode() not in watch.heard
        wait_until(lambda: without_ttl(watch.keys()) == [], "nothing that stays", 20)


def test_only_who_has_a_password_looks_and_nobody_changes_anything(night: Night, flower: Flower) -> None:
    for path in ("/", "/workers", "/tasks", "/broker", "/api/tasks", "/api/workers"):
        assert (path, flower.ask(path, user=None).status) == (path, 401)
        assert (path, flower.ask(path, user="operator:wrong").status) == (path, 401)
    worker = night.one("worker")
    for template in DANGEROUS:
        path = template.format(worker="tickets-batch@x", task="0" * 32)
        assert (path, flower.ask(path, "POST").status) == (path, 403)
        assert (path, flower.ask(path, "POST", user=None).status) == (path, 401)
    assert worker.is_running()


def test_it_listens_on_this_machine_alone(flower: Flower) -> None:
    process = psutil.Process(flower.command.pid)
    listening = {one.laddr for one in process.net_connections() if one.status == psutil.CONN_LISTEN}
    assert {(address.ip, address.port) for address in listening} == {("127.0.0.1", flower.port)}


@pytest.mark.parametrize("text", [None, "", "operator:\n", "a-password\n"])
def test_without_users_it_does_not_start(night: Night, text: str | None, tmp_path: Path) -> None:
    night.configure("http://127.0.0.1:9/v1", redis_url=f"redis://127.0.0.1:{free_port()}/0")
    if text is not None:
        users = tmp_path / "users"
        users.write_text(text, encoding="utf-8")
        night.environment["FLOWER_USERS_FILE"] = str(users)
    ended = night.run(f"--conf={CONFIGURATION}", f"--port={free_port()}", program=PROGRAM, code=1)
    assert ended.err.strip().splitlines()[-1].startswith("flower: ")


def test_with_nothing_running_it_says_so(night: Night) -> None:
    night.configure("http://127.0.0.1:9/v1")
    ended = night.run(f"--conf={CONFIGURATION}", program=PROGRAM, code=1)
    assert "start tickets-batch up" in ended.err
