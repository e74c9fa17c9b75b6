"""Ports for what is killed and must find its own port free when it starts again."""

import random
import socket
from itertools import count
from pathlib import Path

_GIVEN_BY_CHANCE = Path("/proc/sys/net/ipv4/ip_local_port_range")  # where Linux says it; elsewhere we take the usual
_USUAL_LOWEST = 32768
_PER_LANE, _LANES = 1_000, 8


class Ports:
    """Free ports below those that the system gives by chance, so that no connection takes one in its server's absence.

    Each lane has a range of its own.
    """

    def __init__(self, lane: int = 0) -> None:
        begin = _lowest_by_chance() - _PER_LANE * (1 + lane % _LANES)
        self._range = range(begin, begin + _PER_LANE)
        self._next = count(random.randrange(_PER_LANE))  # two runs at one time begin at different places

    def take(self) -> int:
        """One that nobody listens on; never the same twice. Raises RuntimeError when all were tried."""
        for _ in self._range:
            port = self._range[next(self._next) % _PER_LANE]
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
                return port
        raise RuntimeError(f"no port from {self._range.start} to {self._range.stop - 1} is free")


def _lowest_by_chance() -> int:
    try:
        lowest = int(_GIVEN_BY_CHANCE.read_text().split()[0])
    except (OSError, ValueError):
        return _USUAL_LOWEST
    return lowest if lowest > _PER_LANE * (_LANES + 2) else _USUAL_LOWEST
