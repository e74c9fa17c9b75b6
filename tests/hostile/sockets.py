"""Connections as bytes."""

import socket
from urllib.parse import urlsplit


def connected(address: str) -> socket.socket:
    """A connection to an http address."""
    parts = urlsplit(address)
    return socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=10)


def closes(connection: socket.socket) -> bytes:
    """Everything that comes until the other side closes."""
    received = b""
    try:
        while part := connection.recv(65536):
            received += part
    except ConnectionError:
        pass
    return received
