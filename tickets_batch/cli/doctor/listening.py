"""The addresses on which the services of the settings are to listen."""

import errno
from collections.abc import Iterator
from http.client import HTTPException
from urllib.error import URLError
from urllib.request import urlopen

from tickets_batch.cli.doctor.check import Check
from tickets_batch.local.ports import reachable, try_to_listen
from tickets_batch.local.services import nth_address
from tickets_batch.settings import Settings

LOOK_SECONDS = 2.0
LARGEST_PAGE_BYTES = 1_000_000
OUR_METRICS = b"tickets_batch_"


def addresses(settings: Settings) -> Iterator[Check]:
    """Each address that the settings name: it is free, or ours already, or another program has it."""
    for key, listen in _wanted(settings):
        try:
            try_to_listen(listen)
        except OverflowError as error:
            yield Check("listen", "problem", f"cannot listen on {listen}: {error}; change {key}")
        except OSError as error:
            yield _judged(key, listen, error)
        else:
            yield Check("listen", "ok", f"{key}: {listen} is free")


def _judged(key: str, listen: str, error: OSError) -> Check:
    if error.errno != errno.EADDRINUSE:
        # It may be the address of another machine, on which that service runs.
        words = f"nobody can listen on {listen} of this machine ({error.strerror}): change {key}, or run it elsewhere"
        return Check("listen", "warning", words)
    if _is_ours(listen):
        return Check("listen", "ok", f"{key}: tickets-batch listens on {listen} already")
    return Check("listen", "problem", f"another program listens on {listen}: change {key}, or stop what is there")


def _wanted(settings: Settings) -> Iterator[tuple[str, str]]:
    if "gateway" in settings.model_fields_set:
        yield "gateway.listen", settings.gateway.listen
    if settings.scheduler.metrics_listen is not None:
        yield "scheduler.metrics_listen", settings.scheduler.metrics_listen
    if settings.worker.metrics_listen is not None:
        for number in range(1, settings.worker.processes + 1):
            yield "worker.metrics_listen", nth_address(settings.worker.metrics_listen, number)


def _is_ours(listen: str) -> bool:
    """Each of our services shows its metrics where it listens."""
    try:
        with urlopen(f"http://{reachable(listen)}/metrics", timeout=LOOK_SECONDS) as page:
            return OUR_METRICS in page.read(LARGEST_PAGE_BYTES)
    except (URLError, HTTPException, OSError, ValueError):
        return False
