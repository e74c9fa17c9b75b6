"""Ports that are free, and that nobody is given by chance."""

import socket

from tests.chaos.ports import Ports


def test_a_port_is_free_and_none_that_the_system_gives() -> None:
    ports = Ports()
    taken = [ports.take() for _ in range(20)]
    assert len(set(taken)) == len(taken)
    for port in taken:
        with socket.create_server(("127.0.0.1", port)):
            pass
    with socket.create_server(("127.0.0.1", 0)) as given:
        assert max(taken) < given.getsockname()[1]


def test_a_port_that_is_listened_on_is_passed_over() -> None:
    first, second = Ports(7), Ports(7)
    second._next = first._next  # they look at the same ports, one after the other
    port = first.take()
    with socket.create_server(("127.0.0.1", port + 1)):
        assert second.take() > port + 1


def test_lanes_share_no_port() -> None:
    ranges = [Ports(lane)._range for lane in range(8)]
    ports = [port for each in ranges for port in each]
    assert len(set(ports)) == len(ports)
