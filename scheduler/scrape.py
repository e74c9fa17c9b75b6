"""A page of metrics for Prometheus, served from a thread of its own."""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server

from tickets_batch.errors import UserError


@contextmanager
def served(registry: CollectorRegistry, listen: str | None, key: str) -> Iterator[None]:
    """Serve it at HOST:PORT as `/metrics`; nowhere where there is none. `key` is the setting that says where.

    Raises UserError when the address is taken, or is none of this machine's.
    """
    if listen is None:
        yield
        return
    host, _, port = listen.rpartition(":")
    try:
        server, thread = start_http_server(int(port), host.strip("[]"), registry)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UserError(f"cannot listen on {listen}: {why}; change {key}, or stop what is there") from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
