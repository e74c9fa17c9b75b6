"""What of the settings can be looked at on this machine: time, places to write, source, labels, sink and webhook."""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from jobs.days import business_day
from jobs.intake.source import open_source
from jobs.sink import Sink
from jobs.spec import ClassificationSpec
from jobs.store.database import parse
from tickets_batch.cli.doctor.check import Check, Level
from tickets_batch.cli.times import oddity
from tickets_batch.errors import SettingsError, UserError
from tickets_batch.local import open_files
from tickets_batch.local.home import Home
from tickets_batch.settings import Settings

CONNECT_SECONDS = 3.0
FULL_BYTES, LOW_BYTES = 200 * 10**6, 10**9  # free: a day's tickets may not find room, or soon may not


def time_and_zone(settings: Settings) -> Check:
    """The time in the zone of the settings, and what is odd about the next deadline there."""
    now = datetime.now(UTC)
    words = f"{now.astimezone(settings.zone):%Y-%m-%d %H:%M} in {settings.timezone}, deadline {settings.deadline}"
    if odd := oddity("the deadline", settings.deadline, settings.zone, now):
        return Check("time", "warning", f"{words}; {odd}")
    if settings.deadline != "none" and "timezone" not in settings.model_fields_set:
        return Check("time", "warning", f"{words}; nobody has said in which zone: set timezone")
    return Check("time", "ok", words)


def home(settings: Settings) -> str:
    """Raises UserError where it cannot be written."""
    place = Home(settings.home)
    place.make()
    return f"{place.path} can be written"


def disk(settings: Settings) -> Check | str:
    """How much is free where the product writes."""
    found = dict(_free_bytes(settings))
    words = ", ".join(f"{free / 1e9:,.1f} GB free in {place}" for place, free in found.items())
    place, least = min(found.items(), key=lambda item: item[1])
    if least < LOW_BYTES:
        level: Level = "problem" if least < FULL_BYTES else "warning"
        return Check("disk", level, f"only {least / 1e6:,.0f} MB free in {place}: make room there, or move it")
    return words


def files(settings: Settings) -> Check | str:
    """Whether a process that is started from here may have as many connections as the settings ask for."""
    needs = {"a worker process": open_files.of_worker(settings)}
    if "gateway" in settings.model_fields_set:
        needs["the gateway"] = open_files.of_gateway(settings.gateway.max_connections)
    who, needed = max(needs.items(), key=lambda need: need[1])
    allowed = open_files.allowed()
    if allowed is not None and allowed < needed:
        words = f"{who} needs {needed} open files, and {allowed} are allowed: raise ulimit -n, or ask for less at once"
        return Check("files", "warning", words)
    return f"{who} may open the {needed} files that it needs"


def source(settings: Settings) -> str:
    """Raises UserError where it cannot be read."""
    day = business_day("today", settings.zone, datetime.now(UTC))
    return f"{open_source(settings.source, day).describe()} can be read, for {day}"


def labels(settings: Settings) -> tuple[ClassificationSpec | None, Check]:
    """The spec if there is a good one, and what there is to say of it."""
    about = "labels"
    if settings.classification is None:
        words = "none are configured: write [classification] labels in tickets-batch.toml"
        return None, Check(about, "problem", words)
    try:
        spec = ClassificationSpec.of(settings.classification)
    except UserError as error:
        return None, Check(about, "problem", " ".join(str(error).splitlines()))
    return spec, Check(about, "ok", ", ".join(spec.labels))


def sink(settings: Settings) -> str:
    """Raises UserError where its table cannot take results."""
    if settings.sink is None:
        return "none is configured: results stay here until they are asked for"
    table = Sink(settings.sink)
    table.check()
    return f"{table.where} takes results"


def webhook(settings: Settings) -> Check | str:
    """Whether somebody is told; nothing is sent. Raises SettingsError where its URL is missing or none."""
    if settings.alert.webhook is None:
        words = "none is configured, so alerts are in the log, the events and the metrics only: set alert.webhook"
        return words if settings.deadline == "none" else Check("webhook", "warning", words)
    url = urlsplit(settings.alert.webhook.reveal())
    host, port = url.hostname, url.port or (443 if url.scheme == "https" else 80)  # the path may hold a secret
    if not host or url.scheme not in ("http", "https"):
        raise SettingsError("alert.webhook is no http or https URL: mend what it refers to")
    try:
        socket.create_connection((host, port), CONNECT_SECONDS).close()
    except OSError as error:
        words = f"{host}:{port} takes no connection ({error.strerror or error}): mend alert.webhook or the network"
        return Check("webhook", "warning", words)
    return f"{host}:{port} takes connections; nothing was sent"


def _free_bytes(settings: Settings) -> Iterator[tuple[Path, int]]:
    """Each place on a disk of its own, and what is free there."""
    seen = set()
    for place in _places(settings):
        existing = next(path for path in (place, *place.parents) if path.exists())
        device = existing.stat().st_dev
        if device not in seen:
            seen.add(device)
            yield place, shutil.disk_usage(existing).free


def _places(settings: Settings) -> Iterator[Path]:
    yield settings.home.absolute()
    if settings.database_url is not None:
        url = parse(settings.effective_database_url)
        if url.get_backend_name() == "sqlite":
            yield Path(str(url.database)).absolute().parent
    # a source is read to its end into a temporary file of SQLite's, which has its own list of places
    temporary = os.environ.get("SQLITE_TMPDIR") or os.environ.get("TMPDIR") or "/var/tmp"  # noqa: S108 - only looked at
    yield Path(temporary if os.access(temporary, os.W_OK) else tempfile.gettempdir())
