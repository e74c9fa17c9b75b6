"""A plan as a person reads it, and as JSON carries it."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from scheduler.plan import Chat, Figure, Night, Origin, PlannedPool, advise
from tickets_batch.cli.pool_text import amount_in_words
from tickets_batch.cli.text import COLUMNS, fact
from tickets_batch.cli.times import iso, shown_instant
from tickets_batch.progress import duration
from tickets_batch.words import counted

WORDS = {Chat.NONE: "no chat at all", Chat.USUAL: "chat as last week", Chat.FULL: "a chat that never rests"}


def plan_in_words(pools: Sequence[PlannedPool], night: Night | None, zone: ZoneInfo) -> Iterator[str]:
    """One part for each pool, and one for the night; at most 80 columns."""
    for pool in pools:
        yield from _pool_in_words(pool, night)
    if night is not None:
        yield from _night_in_words(night, zone)


def plan_as_json(pools: Sequence[PlannedPool], night: Night | None, now: datetime) -> dict[str, Any]:
    """The same as one object; figures have `value`, `origin` and `detail`, instants are UTC."""
    return {
        "at": iso(now),
        "pools": [_pool_as_json(pool, night) for pool in pools],
        "night": _night_as_json(night) if night else None,
    }


def _pool_in_words(pool: PlannedPool, night: Night | None) -> Iterator[str]:
    total, floor = pool.capacity.total, pool.capacity.floor
    yield f"pool {pool.name}: {pool.model}, {amount_in_words(total)}, batch's floor {floor.slots}"
    yield fact("numbers", f"{pool.basis.origin}: {pool.basis.detail}")
    yield fact("a ticket", f"takes {pool.ticket_seconds.value:.2f} s {_origin(pool.ticket_seconds)}")
    if pool.capacity.is_dedicated:
        yield fact("tickets", _per_hour(pool.tickets_per_hour_at_full, "all of the pool"))
    else:
        most = "the floor without chat" if pool.is_blind else "the full limit"
        yield fact("tickets", _per_hour(pool.tickets_per_hour_at_full, most))
        yield fact("", _per_hour(pool.tickets_per_hour_at_floor, "the floor"))
    if pool.is_blind:
        yield fact(
            "blind",
            "no [[pool.signal]] tells of the chat here, so that batch stays at its floor all night: every number "
            "counts with that",
        )
    peak, people = pool.peak_chat_requests, pool.people_chatting
    if peak is not None and people is not None:
        yield fact("chat", f"{counted(round(peak.value), 'request')} at a time {_origin(peak)}")
        yield fact("", f"about {counted(round(people.value), 'person')} {_origin(people)}")
    costs = list(pool.cost_per_ticket())
    if costs:
        shown = ", ".join(f"{1000 * cost:.3g} with {number}" for number, cost in costs)
        yield fact(
            "cost",
            f"of 1,000 tickets, by how many are in flight: {shown} "
            f"({pool.basis.origin}: {pool.cost_per_hour:g} an hour (configured), all of it for the tickets)",
        )
    advice = advise(pool, night)
    yield fact("share by", f"{advice.way}: {advice.why}" + (f"; {advice.sizes}" if advice.sizes else ""))


def _night_in_words(night: Night, zone: ZoneInfo) -> Iterator[str]:
    by = f", to be done by {shown_instant(night.deadline_at, zone)}" if night.deadline_at else ", without a deadline"
    pools = "" if len(night.pools) == 1 else f" on {', '.join(pool.name for pool in night.pools)} together"
    tickets = f"{counted(night.tickets, 'ticket')} (given){pools}"
    yield textwrap.fill(f"{tickets} from {shown_instant(night.starts_at, zone)}{by}", COLUMNS)
    yield f"  {'with':<24} {'takes':<13} {'done by':<18} latest safe start"
    for chat in _chats(night):
        finish, latest = night.finish(chat), night.latest_start(chat)
        takes = duration((finish - night.starts_at).total_seconds()) if finish else "over a week"
        done = _clock(finish, zone)
        if finish and night.deadline_at and finish > night.deadline_at:
            done += " late"
        yield f"  {WORDS[chat]:<24} {takes:<13} {done:<18} {_clock(latest, zone)}".rstrip()
    yield fact("numbers", _night_origin(night))


def _chats(night: Night) -> list[Chat]:
    if all(pool.capacity.is_dedicated for pool in night.pools):
        return [Chat.NONE]
    return [Chat.NONE, *([Chat.USUAL] if night.knows_chat else []), Chat.FULL]


def _night_origin(night: Night) -> str:
    origins = ", ".join(dict.fromkeys(f"{pool.name} {pool.basis.origin}" for pool in night.pools))
    words = f"{origins}; tickets are assumed to be like those"
    blind = [pool.name for pool in night.pools if pool.is_blind]
    if blind:
        words += f"; batch stays at its floor on {', '.join(blind)} for want of a [[pool.signal]]"
    if Chat.FULL not in _chats(night):
        return f"{words}; no chat goes to a pool of batch's own"
    if night.knows_chat:
        return f"{words}; last week's chat is stored, hours without a sample count as the busiest (assumed)"
    return f"{words}; nothing is stored of the chat of each pool yet, so that chat as last week is not known"


def _clock(instant: datetime | None, zone: ZoneInfo) -> str:
    return f"{instant.astimezone(zone):%m-%d %H:%M}" if instant else "-"


def _per_hour(figure: Figure, what: str) -> str:
    return f"{figure.value:,.0f} per hour at {what} {_origin(figure)}"


def _origin(figure: Figure) -> str:
    return f"({figure.origin}: {figure.detail})"


def _pool_as_json(pool: PlannedPool, night: Night | None) -> dict[str, Any]:
    figures: Mapping[str, Figure | None] = {
        "ticket_seconds": pool.ticket_seconds,
        "tickets_per_hour_at_floor": pool.tickets_per_hour_at_floor,
        "tickets_per_hour_at_full": pool.tickets_per_hour_at_full,
        "peak_chat_requests": pool.peak_chat_requests,
        "people_chatting": pool.people_chatting,
    }
    advice = advise(pool, night)
    knee = pool.basis.curve.knee
    return {
        "pool": pool.name,
        "model": pool.model,
        "is_dedicated": pool.capacity.is_dedicated,
        "is_blind": pool.is_blind,
        "ttft_target_seconds": pool.ttft_target_seconds,
        "basis": {"origin": pool.basis.origin, "detail": pool.basis.detail},
        **{name: asdict(figure) if figure else None for name, figure in figures.items()},
        "knee": {"in_flight": knee.in_flight, "tickets_per_second": knee.tickets_per_second},
        "cost_per_ticket": [{"in_flight": number, "cost": cost} for number, cost in pool.cost_per_ticket()],
        "advice": {"way": advice.way, "why": advice.why, "sizes": advice.sizes},
        "curve": pool.basis.curve.as_json() if pool.basis.origin is Origin.MEASURED else None,
    }


def _night_as_json(night: Night) -> dict[str, Any]:
    chats = {chat.value: _outcome_as_json(night, chat) if chat in _chats(night) else None for chat in Chat}
    return {
        "tickets": night.tickets,
        "start_at": iso(night.starts_at),
        "deadline_at": iso(night.deadline_at),
        **chats,
        "detail": _night_origin(night),
    }


def _outcome_as_json(night: Night, chat: Chat) -> dict[str, Any]:
    finish = night.finish(chat)
    return {
        "seconds": round((finish - night.starts_at).total_seconds()) if finish else None,
        "done_at": iso(finish),
        "is_in_time": None if night.deadline_at is None else finish is not None and finish <= night.deadline_at,
        "latest_start_at": iso(night.latest_start(chat)),
    }
