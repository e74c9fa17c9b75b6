"""What the live view says of a batch: the rows, each with its weight when the window is too short for all."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from jobs.store.forecasts import StoredForecast
from tickets_batch.cli.live.event_text import event_in_words
from tickets_batch.cli.live.look import Look
from tickets_batch.cli.live.pool_rows import pool_rows
from tickets_batch.cli.live.row import Row, Tone
from tickets_batch.cli.prospect import WORDS as PACE_WORDS
from tickets_batch.cli.text import services_in_words, state_in_words
from tickets_batch.cli.times import shown_instant
from tickets_batch.cli.view import done, done_in_words, eta, rate_per_second
from tickets_batch.progress import duration
from tickets_batch.words import counted

LATE_SECONDS = 3.0  # an older look says so
OLD_FORECAST_SECONDS = 20.0  # one is made every ten seconds
PACE_TONES = {"guaranteed": Tone.GOOD, "on_track": Tone.GOOD, "at_risk": Tone.WARNING, "will_miss": Tone.BAD}


def rows_of(look: Look, zone: ZoneInfo) -> Iterator[Row]:
    """All rows, in their order; of an old look, none is in the colours of now."""
    is_late = look.age_seconds >= LATE_SECONDS
    yield _title(look, zone, is_late=is_late)
    for note in look.notes:
        yield Row(note, "look here", Tone.BAD, weight=92)
    for row in _facts(look, zone):
        yield replace(row, tone=Tone.FAINT) if is_late else row


def _facts(look: Look, zone: ZoneInfo) -> Iterator[Row]:
    yield _bar(look)
    yield Row(_tickets(look), "tickets", weight=60)
    yield Row(_rate(look), "rate", weight=80)
    if look.waits_for:
        yield Row(f"{', '.join(look.waits_for)}: the nearest deadline is served first", "waits for", weight=70)
    yield from _ahead(look, zone)
    for pool in look.pools:
        yield from pool_rows(pool, is_away=look.why_away is not None)
    if put_back := _put_back(look):
        yield Row(put_back, "put back", weight=25)
    is_anyone = bool(look.at_work)
    yield Row(services_in_words(look.at_work), "at work", Tone.PLAIN if is_anyone else Tone.WARNING, weight=40)
    for number, event in enumerate(look.events):
        words = f"{clock(event.at, look.at, zone, seconds=True)} {event_in_words(event)}"
        yield Row(words, "" if number else "events", Tone.FAINT, weight=30 - number, is_cut=True)


def clock(instant: datetime, now: datetime, zone: ZoneInfo, *, seconds: bool = False) -> str:
    """The time of day in `zone`, with its date unless it is less than twenty hours away or today."""
    local = instant.astimezone(zone)
    text = f"{local:%H:%M:%S}" if seconds else f"{local:%H:%M}"
    is_near = abs(instant - now) < timedelta(hours=20)
    return text if is_near or local.date() == now.astimezone(zone).date() else f"{local:%m-%d} {text}"


def _title(look: Look, zone: ZoneInfo, *, is_late: bool) -> Row:
    when = f"{look.at.astimezone(zone):%H:%M:%S} {zone.key}"
    state = f"{look.batch.state}, blocked" if look.batch.blocked else state_in_words(look.batch, zone, look.at)
    if is_late:
        when = f"as of {when}, {duration(look.age_seconds)} ago"
    return Row(f"{look.batch.id}: {state}; {when}", name=None, tone=Tone.BAD if is_late else Tone.STRONG, weight=100)


def _bar(look: Look) -> Row:
    batch = look.batch
    share = done(batch) / batch.total if batch.total else 0.0
    words = f"{int(share * 100)}%, {done_in_words(batch)} done"
    return Row(words, "done", Tone.GOOD, weight=95, share=share)


def _tickets(look: Look) -> str:
    batch = look.batch
    counts = [(batch.succeeded, "succeeded"), (batch.failed, "failed"), (batch.expired, "expired")]
    counts += [(batch.cancelled, "cancelled"), (batch.running, "running"), (batch.pending, "pending")]
    return ", ".join(f"{count:,} {word}" for count, word in counts if count or word in ("succeeded", "failed"))


def _rate(look: Look) -> str:
    late, whole = look.rate_per_second, rate_per_second(look.batch, look.at)
    now = "no ticket done of late" if late is None else f"{late:,.1f} tickets/s now"
    return now if whole is None else f"{now}, {whole:,.1f} since the first"


def _put_back(look: Look) -> str:
    batch = look.batch
    if not batch.yields and not batch.withdrawn:
        return ""
    yields, wasted = counted(batch.yields, "yield"), counted(batch.wasted_tokens, "token")
    return f"{yields}, {batch.withdrawn:,} withdrawn in flight, {wasted} wasted"


def _ahead(look: Look, zone: ZoneInfo) -> Iterator[Row]:
    """When it will be done, how that stands to the deadline, and the pace; how old the forecast is, if it is old."""
    batch, forecast = look.batch, look.good_forecast
    if batch.finished_at is not None:
        yield Row(shown_instant(batch.finished_at, zone), "finished", weight=90)
        return
    if forecast is None:
        yield from _without_forecast(look, zone)
        return
    age = look.forecast_age_seconds or 0.0
    old = f" (foreseen {duration(age)} ago)" if age > OLD_FORECAST_SECONDS else ""
    if forecast.p50_at and forecast.p90_at:
        half, most = clock(forecast.p50_at, look.at, zone), clock(forecast.p90_at, look.at, zone)
        yield Row(f"{half} as likely as not, by {most} in nine cases of ten{old}", "done at", weight=90)
    else:
        yield Row(f"{_at_this_rate(look, zone)}too little is known yet for a forecast{old}", "done at", weight=90)
    tone = PACE_TONES.get(forecast.pace or "", Tone.PLAIN)
    yield Row(_deadline(look, zone, forecast.p90_at), "deadline", tone, weight=89)
    if forecast.pace and batch.deadline_at:
        yield Row(PACE_WORDS[forecast.pace] + _rates(forecast), "pace", tone, weight=88)


def _without_forecast(look: Look, zone: ZoneInfo) -> Iterator[Row]:
    why, tone = _why_no_forecast(look)
    yield Row(f"{_at_this_rate(look, zone)}{why}", "done at", tone, weight=90)
    yield Row(_deadline(look, zone, None), "deadline", weight=89)


def _at_this_rate(look: Look, zone: ZoneInfo) -> str:
    finish = eta(look.batch, look.rate_per_second, look.at) if look.is_going_on else None
    return f"about {clock(finish, look.at, zone)} at this rate; " if finish else ""


def _why_no_forecast(look: Look) -> tuple[str, Tone]:
    if not look.is_going_on:
        what = "blocked" if look.batch.blocked else look.batch.state
        return f"nothing is foreseen of a batch that is {what}", Tone.PLAIN
    age = look.forecast_age_seconds
    why = "no forecast yet" if age is None else f"no forecast for {duration(age)}"
    if any(service.role == "scheduler" for service in look.at_work):
        return why, Tone.PLAIN if age is None else Tone.WARNING
    return f"{why}: no scheduler is alive", Tone.WARNING


def _deadline(look: Look, zone: ZoneInfo, p90_at: datetime | None) -> str:
    deadline = look.batch.deadline_at
    if deadline is None:
        return "none"
    left = (deadline - look.at).total_seconds()
    words = f"{clock(deadline, look.at, zone)}, " + (f"in {duration(left)}" if left > 0 else "passed")
    if p90_at is None:
        return words
    margin = (deadline - p90_at).total_seconds()
    if margin < 0:
        return f"{words}; the later time above is {duration(-margin)} past it"
    return f"{words}; {duration(margin)} to spare in nine cases of ten"


def _rates(forecast: StoredForecast) -> str:
    if not forecast.needed_rate or not forecast.achieved_rate:
        return ""
    return f"; {forecast.needed_rate:,.0f} tokens/s needed, {forecast.achieved_rate:,.0f} achieved"
