"""Ports of this machine's loopback."""

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


def answers_http(url: str, timeout_seconds: float = 1.0) -> bool:
    """True when a server answers there with success."""
    try:
        with urlopen(url, timeout=timeout_seconds) as response:  # noqa: S310 - an address of our own making
            return bool(response.status == 200)
    except (URLError, HTTPException, OSError):
        return False
