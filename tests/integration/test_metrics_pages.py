"""Each process of a real night has its page, where the settings say."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.process import EngineProcess
from tests.support.at_work import wait_until_at_work
from tests.support.metrics import known_metrics
from tests.support.night import Night
from tests.support.wait import wait_until
from tickets_batch.local.ports import free_port

pytestmark = pytest.mark.long

COUNT = 60
WORD = "Zwetschgenknoedel"


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    made = Night(tmp_path)
    yield made
    made.close()


def two_free_ports() -> int:
    """The first of two ports that follow each other."""
    for _ in range(100):
        port = free_port()
        with contextlib.suppress(OSError, OverflowError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port + 1))
            return port
    raise AssertionError("no two free ports follow each other")


def page(port: int) -> str:
    """What is shown there; nothing while nobody listens."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
    except URLError:
        return ""
    return text


def total(text: str, name: str, **labels: str) -> float:
    """The sum of a metric's samples with these labels."""
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples if one.name == name]
    return sum(one.value for one in samples if labels.items() <= one.labels.items())


def families(text: str) -> set[str]:
    found = [family for family in text_string_to_metric_families(text) if not family.name.endswith("_created")]
    return {f"{family.name}_total" if family.type == "counter" else family.name for family in found}


@pytest.mark.long
def test_every_process_shows_its_part_of_the_night(night: Night) -> None:
    scheduler, worker = free_port(), two_free_ports()
    night.environment["TICKETS_BATCH__SCHEDULER__METRICS_LISTEN"] = f"127.0.0.1:{scheduler}"
    night.environment["TICKETS_BATCH__WORKER__METRICS_LISTEN"] = f"127.0.0.1:{worker}"
    with EngineProcess(EngineProfile(step_base_seconds=0.02), "--answer-tokens", "8") as engine:
        night.configure(engine.base_url, processes=2)
        night.tickets(f"{WORD}: where is parcel {number}?" for number in range(COUNT))
        night.start("up")
        ports = (scheduler, worker, worker + 1)
        wait_until(lambda: all(page(port) for port in ports), "all pages", 30)
        wait_until_at_work(night)
        batch_id = night.run("submit", "--all", code=0).out.strip()
        night.wait_until_done(COUNT)

        def answered() -> float:
            pages = [page(port) for port in ports[1:]]
            return sum(total(text, "tickets_batch_worker_calls_total", outcome="answered") for text in pages)

        wait_until(lambda: answered() == COUNT, "the calls of both workers", 30)
        wait_until(lambda: total(page(scheduler), "tickets_batch_scheduler_workers") == 2, "both workers", 30)
        pages = [page(port) for port in ports]
    assert total(pages[0], "tickets_batch_scheduler_leads") == 1
    assert total(pages[0], "tickets_batch_pool_condition", pool="gpu", condition="dedicated") == 1
    known = set(known_metrics())
    assert {name for text in pages for name in families(text)} == {name for name in known if "_gateway_" not in name}
    assert [text for text in pages if WORD in text or "parcel" in text] == []
    assert [text for text in pages[1:] if batch_id in text] == []
    logs = [file.read_text(encoding="utf-8") for file in (night.home / "logs").glob("*.log")]
    assert len(logs) >= 3
    assert [text for text in logs if WORD in text] == []
