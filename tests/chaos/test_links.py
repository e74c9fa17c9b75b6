"""The proxy between parts and services: each of its faults as both ends see it."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from threading import Thread

import pytest

from tests.chaos.links import Links
from tests.support.wait import wait_until

WAY = "worker-1 - redis"


class Echo:
    """A server that says everything twice, on a thread."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.open = 0
        Thread(target=self._serve, name="echo", daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                Thread(target=self._repeat, args=(connection,), daemon=True).start()

    def _repeat(self, connection: socket.socket) -> None:
        self.open += 1
        with connection, suppress(OSError):
            while data := connection.recv(100):
                connection.sendall(data * 2)
        self.open -= 1


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.close()


@pytest.fixture
def links() -> Iterator[Links]:
    with Links() as made:
        yield made


def said(connection: socket.socket, word: bytes, timeout_seconds: float = 5.0) -> bytes:
    connection.settimeout(timeout_seconds)
    connection.sendall(word)
    return connection.recv(100)


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=5)


def test_a_way_carries_both_directions_and_the_end(links: Links, echo: Echo) -> None:
    with connected(links.to_port(WAY, echo.port)) as client:
        assert said(client, b"ab") == b"abab"
        assert echo.open == 1
    wait_until(lambda: echo.open == 0, "the server to hear that its client has gone")


def test_a_cut_resets_who_is_connected_and_lets_others_in(links: Links, echo: Echo) -> None:
    port = links.to_port(WAY, echo.port)
    with connected(port) as client:
        assert said(client, b"ab") == b"abab"
        links.begin("cut", WAY)()
        with pytest.raises(ConnectionError):
            client.recv(100)
    with connected(port) as client:
        assert said(client, b"cd") == b"cdcd"


def test_refusing_lets_nobody_in_until_it_is_healed(links: Links, echo: Echo) -> None:
    port = links.to_port(WAY, echo.port)
    heal = links.begin("refuse", WAY)
    with pytest.raises(ConnectionRefusedError):
        connected(port)
    heal()
    with connected(port) as client:
        assert said(client, b"ab") == b"abab"


def test_a_stalled_way_goes_on_where_it_stopped(links: Links, echo: Echo) -> None:
    with connected(links.to_port(WAY, echo.port)) as client:
        assert said(client, b"ab") == b"abab"
        heal = links.begin("stall", WAY)
        with pytest.raises(TimeoutError):
            said(client, b"cd", 0.2)
        heal()
        client.settimeout(5)
        assert client.recv(100) == b"cdcd"


def test_a_half_open_way_leads_nowhere_and_new_ones_are_good(links: Links, echo: Echo) -> None:
    port = links.to_port(WAY, echo.port)
    with connected(port) as client:
        assert said(client, b"ab") == b"abab"
        heal = links.begin("half-open", WAY)
        with pytest.raises(TimeoutError):
            said(client, b"cd", 0.2)
        with connected(port) as other:
            assert said(other, b"ef") == b"efef"
        heal()
        with pytest.raises(TimeoutError):
            said(client, b"gh", 0.2)
