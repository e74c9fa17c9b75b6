"""An event in the words of a person, without its time."""

from collections.abc import Callable, Mapping
from typing import Any

from jobs.store.events import Event, EventKind
from tickets_batch.words import counted

Detail = Mapping[str, Any]


def event_in_words(event: Event) -> str:
    """One line; of a kind that is not known here, its name."""
    words = WORDS.get(event.kind)
    said = words(event.detail) if words else event.kind.replace("_", " ")
    return f"pool {event.pool}: {said}" if event.pool else said


def _loaded(detail: Detail) -> str:
    reused = f", {detail['reused']:,} of them reused" if detail.get("reused") else ""
    rejected = f", {counted(detail['rejected'], 'row')} rejected" if detail.get("rejected") else ""
    return f"{counted(detail.get('added', 0), 'ticket')}{reused}{rejected}"


def _ended(how: str) -> Callable[[Detail], str]:
    def words(detail: Detail) -> str:
        counts = [
            f"{detail[name]:,} {name}" for name in ("succeeded", "failed", "expired", "cancelled") if detail[name]
        ]
        return f"{how}: {', '.join(counts) or 'no tickets'}"

    return lambda detail: words(detail) if "succeeded" in detail else how


def _retried(detail: Detail) -> str:
    return f"retried: {detail.get('failed', 0):,} failed, {detail.get('expired', 0):,} expired"


def _reaped(detail: Detail) -> str:
    failed = f", {detail['failed']:,} of them failed" if detail.get("failed") else ""
    return f"{counted(detail.get('jobs', 0), 'ticket')} taken back from workers that went away{failed}"


def _moved(detail: Detail) -> str:
    came_from = f"{detail['from']} -> " if detail.get("from") else ""
    why = f", {detail['reason']}" if detail.get("reason") else ""
    return f"{came_from}{detail.get('to')}{why}"


WORDS: Mapping[str, Callable[[Detail], str]] = {
    EventKind.SUBMITTED: lambda detail: f"submitted: {_loaded(detail)}",
    EventKind.TOPPED_UP: lambda detail: f"topped up: {_loaded(detail)}",
    EventKind.REOPENED: lambda detail: "reopened",
    EventKind.RETRIED: _retried,
    EventKind.REAPED: _reaped,
    EventKind.BLOCKED: lambda detail: f"blocked: {detail.get('why')}",
    EventKind.UNBLOCKED: lambda detail: "goes on: it is blocked no more",
    EventKind.PURGED: lambda detail: f"text of {counted(detail.get('texts', 0), 'ticket')} removed",
    EventKind.LIMIT: _moved,
    EventKind.PACE: lambda detail: f"pace {_moved(detail).replace('_', ' ')}",
    EventKind.RESUMED: lambda detail: "resumed",
    EventKind.PAUSED: lambda detail: "paused",
    EventKind.CANCELLING: lambda detail: "is being cancelled",
    EventKind.COMPLETED: _ended("completed"),
    EventKind.EXPIRED: _ended("deadline passed"),
    EventKind.CANCELLED: _ended("cancelled"),
}
