"""Ports of this machine."""

import socket
from http.client import HTTPException
from urllib.error import URLError
from urllib.request import urlopen

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def reachable(listen: str) -> str:
    """HOST:PORT at which a program of this machine finds what listens on `listen`, which may be every address."""
    host, _, port = listen.rpartition(":")
    everywhere = {"0.0.0.0": LOOPBACK, "[::]": "[::1]", "::": "[::1]"}  # noqa: S104 - only looked for
    return f"{everywhere.get(host, host)}:{port}"


def try_to_listen(listen: str) -> None:
    """Listen on HOST:PORT for a moment. Raises OSError, or OverflowError where there is no such port."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, int(port)))
        probe.listen()


def answers_http(url: str, timeout_seconds: float = 1.0) -> bool:
    """True when a server answers there with success."""
    try:
        with urlopen(url, timeout=timeout_seconds) as response:  # noqa: S310 - an address of our own making
            return bool(response.status == 200)
    except (URLError, HTTPException, OSError):
        return False
