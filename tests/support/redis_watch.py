"""Everything that a Redis server is told, and everything that it holds, as text to search in."""

import base64
import contextlib
import re
import socket
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import redis

# The only keys that may have no time to live: the ledger's epoch, and what Celery's transport keeps for its queues.
PERMANENT = re.compile(
    r"tickets-batch:\{[^}]+\}:epoch"
    r"|tickets-batch:celery:tickets-batch"
    r"|tickets-batch:celery:unacked(_index|_mutex)?"
    r"|tickets-batch:celery:_kombu\.binding(_permanent|_deadlines)?(\.(tickets-batch|celeryev|celery\.pidbox))?"
)
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{24,}={0,2}")


@dataclass(frozen=True, slots=True)
class Key:
    """One key: its name, whether it goes away by itself, and all that is in it."""

    name: str
    has_ttl: bool
    content: bytes


class RedisWatch:
    """A context manager that hears every command from its beginning on, and reads the keys when it is asked to."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self._client = redis.Redis.from_url(url, socket_timeout=5)
        self._heard = bytearray()
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._listen, name="redis-monitor", daemon=True)

    @property
    def heard(self) -> bytes:
        """Every command so far, with what stands in its Base64 parts beside it."""
        return unfolded(bytes(self._heard))

    def keys(self) -> list[Key]:
        """What is there now."""
        found = []
        for name in self._client.scan_iter(count=1000):
            ttl_ms, content = self._client.pttl(name), self._content(name)
            if ttl_ms != -2:  # gone since it was listed
                found.append(Key(name.decode(), ttl_ms >= 0, unfolded(content)))
        return found

    def __enter__(self) -> Self:
        self._socket = socket.create_connection((self._url.hostname or "", self._url.port or 0), timeout=5)
        password = f"AUTH {self._url.password}\r\n" if self._url.password else ""
        self._socket.sendall(f"{password}MONITOR\r\n".encode())
        self._socket.settimeout(None)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._socket is not None
        with contextlib.suppress(OSError):  # the server may be gone
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._socket.close()
        self._client.close()

    def _listen(self) -> None:
        assert self._socket is not None
        try:
            while received := self._socket.recv(1 << 16):
                self._heard += received
        except OSError:
            return

    def _content(self, name: bytes) -> bytes:
        read: dict[Any, Any] = {
            b"string": self._client.get,
            b"list": lambda key: self._client.lrange(key, 0, -1),
            b"set": self._client.smembers,
            b"hash": self._client.hgetall,
            b"zset": lambda key: self._client.zrange(key, 0, -1, withscores=True),
            b"none": lambda _: b"",
        }
        kind: Any = self._client.type(name)
        return repr(read[kind](name)).encode()


def unfolded(text: bytes) -> bytes:
    """A text with every Base64 part of it decoded and put at its end: Celery wraps a task's arguments like that."""
    parts = [text]
    for part in _BASE64.findall(text):
        try:
            parts.append(base64.b64decode(part + b"=" * (-len(part) % 4)))
        except ValueError:
            continue
    return b"\n".join(parts)


def without_ttl(keys: list[Key]) -> list[str]:
    """The names of the keys that would stay for ever and are not known to."""
    return [key.name for key in keys if not key.has_ttl and not PERMANENT.fullmatch(key.name)]
