"""One page of an engine's metrics, in our words."""

from dataclasses import dataclass

from scheduler.signals.exposition import Histogram, Page, UnreadablePage
from scheduler.signals.names import MetricNames

_STARTED = "process_start_time_seconds"  # of the engine's process: tells two replicas behind one address apart


class MissingMetrics(UnreadablePage):
    """The page lacks metrics that are needed; the message names them."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one page says; `waiting_for_room` is the part of `waiting` that is congestion.

    `started_at` tells engines behind one address apart (seconds since 1970), `missing` names what would have told more;
    both histograms are in seconds. `kv_usage` is a share, 0 to 1.
    """

    running: int
    waiting: int
    waiting_for_room: int
    kv_usage: float | None = None
    ttft: Histogram | None = None
    queue_time: Histogram | None = None
    started_at: float | None = None
    missing: tuple[str, ...] = ()


def read_page(names: MetricNames, body: bytes) -> Reading:
    """Raises UnreadablePage, or MissingMetrics where the requests running or waiting are not on it."""
    needed = [name for name in (names.running, names.waiting, names.waiting_by_reason) if name is not None]
    page = Page.parse(body, [*needed, *names.optional, _STARTED])
    running = page.total(names.running, names.kept)
    waiting, waiting_for_room = _waiting(names, page)
    if running is None or waiting is None:
        lacking = [name for name, value in ((names.running, running), (names.waiting, waiting)) if value is None]
        raise MissingMetrics(f"{' and '.join(lacking)} missing: {names.to_do}")
    ttft = page.histogram(names.ttft) if names.ttft else None
    queue_time = page.histogram(names.queue_time) if names.queue_time else None
    kv_usage = page.largest(names.kv_usage) if names.kv_usage else None
    found = {names.kv_usage: kv_usage, names.ttft: ttft, names.queue_time: queue_time}
    return Reading(
        running=round(running),
        waiting=round(waiting),
        waiting_for_room=round(waiting_for_room),
        kv_usage=kv_usage,
        ttft=ttft,
        queue_time=queue_time,
        started_at=page.largest(_STARTED),
        missing=tuple(name for name in names.optional if found[name] is None),
    )


def _waiting(names: MetricNames, page: Page) -> tuple[float | None, float]:
    """All that wait, and those that wait for room."""
    total = page.total(names.waiting, names.kept)
    by_reason = page.samples.get(names.waiting_by_reason, []) if names.waiting_by_reason else []
    if not by_reason:
        return total, total or 0.0
    for_room = sum(value for labels, value in by_reason if labels.get("reason") == "capacity")
    return (sum(value for _, value in by_reason) if total is None else total), for_room
