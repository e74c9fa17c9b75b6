"""What `doctor` says of the addresses on which the services are to listen, with real sockets on them."""

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest
from prometheus_client import CollectorRegistry, Gauge

from scheduler.scrape import served
from tickets_batch.cli.doctor.listening import addresses
from tickets_batch.local.ports import free_port, reachable
from tickets_batch.settings import Settings


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody listens who never answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server.getsockname()[1]


def with_gateway(listen: str) -> Settings:
    return Settings.model_validate({"gateway": {"listen": listen}})


def found(settings: Settings) -> list[tuple[str, str]]:
    return [(check.level, check.words) for check in addresses(settings)]


def test_nothing_is_said_where_nothing_is_to_listen() -> None:
    assert found(Settings()) == []


def test_free() -> None:
    listen = f"127.0.0.1:{free_port()}"
    assert found(with_gateway(listen)) == [("ok", f"gateway.listen: {listen} is free")]


def test_another_program_is_there(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tickets_batch.cli.doctor.listening.LOOK_SECONDS", 0.1)
    words = f"another program listens on 127.0.0.1:{taken}: change gateway.listen, or stop what is there"
    assert found(with_gateway(f"127.0.0.1:{taken}")) == [("problem", words)]


def test_every_worker_has_a_port_of_its_own(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tickets_batch.cli.doctor.listening.LOOK_SECONDS", 0.1)
    first = f"127.0.0.1:{taken - 1}"
    settings = Settings.model_validate({"worker": {"processes": 2, "metrics_listen": first}})
    second = found(settings)[1]
    assert second[0] == "problem"
    assert f":{taken}: change worker.metrics_listen" in second[1]


def test_it_is_ours_already() -> None:
    listen, registry = f"127.0.0.1:{free_port()}", CollectorRegistry()
    Gauge("tickets_batch_scheduler_leads", "Any metric of ours.", registry=registry)
    settings = Settings.model_validate({"scheduler": {"metrics_listen": listen}})
    with served(registry, listen, "scheduler.metrics_listen"):
        assert found(settings) == [("ok", f"scheduler.metrics_listen: tickets-batch listens on {listen} already")]


def test_the_address_of_another_machine() -> None:
    ((level, words),) = found(with_gateway("192.0.2.1:8090"))  # RFC 5737: nobody's
    assert level == "warning"
    assert words.startswith("nobody can listen on 192.0.2.1:8090 of this machine (")


def test_no_such_port() -> None:
    ((level, words),) = found(with_gateway("127.0.0.1:70000"))
    assert level == "problem"
    assert words.startswith("cannot listen on 127.0.0.1:70000: ")


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("0.0.0.0:8090", "127.0.0.1:8090"),
        ("[::]:8090", "[::1]:8090"),
        ("127.0.0.1:8090", "127.0.0.1:8090"),
        ("gateway.internal:8090", "gateway.internal:8090"),
    ],
)
def test_where_a_program_of_this_machine_finds_it(listen: str, address: str) -> None:
    assert reachable(listen) == address
