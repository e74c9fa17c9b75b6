"""`plan`: what each pool carries, and what a night takes; with `--measure`, the pool is measured first."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from jobs.days import next_occurrence
from jobs.store import curves, samples
from jobs.store.curves import StoredCurve
from jobs.store.samples import LoadSample
from scheduler.curve import Curve, Step, UnreadableCurve
from scheduler.hours import SharedHours
from scheduler.plan import Basis, Night, Origin, PlannedPool
from scheduler.pools import capacity_of
from scheduler.simulation.engine.profile import EngineProfile
from scheduler.simulation.fitted import DEFAULT_LENGTHS, played
from scheduler.usual import UsualLoad
from tickets_batch.cli import exit_codes
from tickets_batch.cli.blind import is_blind
from tickets_batch.cli.database import is_missing, opened
from tickets_batch.cli.frame import Call, verb
from tickets_batch.cli.intent import require_pool
from tickets_batch.cli.plan_text import plan_as_json, plan_in_words
from tickets_batch.cli.rows import refuse_day_of_all
from tickets_batch.cli.times import deadline_from, shown_instant
from tickets_batch.errors import SettingsError
from tickets_batch.settings import Pool, Settings

LAST_WEEK = timedelta(days=7)


@verb()
@click.option("--measure", "measured", metavar="POOL", help="Measure this pool first, by sending it tickets.")
@click.option("--pool", "pools", metavar="NAME", multiple=True, help="Only this pool; again for more.")
@click.option("--tickets", type=click.IntRange(min=1), metavar="N", help="How long would so many take?")
@click.option("--deadline", metavar="HH:MM|none", help="When they must be done; default: as in the settings.")
@click.option("--start", metavar="HH:MM", help="When they are begun; default: now.")
@click.option(
    "--ticket-seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Plan with tickets that take so long at the full limit, instead of what was measured.",
)
@click.option(
    "--date",
    default="today",
    show_default=True,
    metavar="today|yesterday|YYYY-MM-DD",
    help="With --measure: whose tickets are sent.",
)
@click.option("--all", "every_row", is_flag=True, help="With --measure: tickets of any date.")
@click.option("--input", type=click.Path(path_type=Path), metavar="FILE", help="With --measure: the source.")
@click.option("--unwatched", is_flag=True, help="With --measure: nobody chats there, so do not look out for chat.")
@click.option("--model", metavar="NAME", help="The model, instead of the settings'.")
@click.option("--labels", metavar="A,B,C", help="The labels, instead of the settings'.")
@click.option("--json", "wants_json", is_flag=True, help="One JSON object on stdout.")
@click.pass_obj
def plan_command(
    call: Call,
    measured: str | None,
    pools: tuple[str, ...],
    tickets: int | None,
    deadline: str | None,
    start: str | None,
    ticket_seconds: float | None,
    date: str,
    every_row: bool,
    input: Path | None,
    unwatched: bool,
    model: str | None,
    labels: str | None,
    wants_json: bool,
) -> int:
    """Say in numbers what each pool can carry: chat at a time, tickets per hour, and how long a night takes.

    The numbers come from the pool's last measurement. --measure POOL makes one: it sends tickets of the source to the
    real endpoint, more and more at a time, stops at once when chat comes, and proposes `capacity` and `protected`.
    """
    refuse_day_of_all(click.get_current_context())
    settings = call.settings(model=model, labels=labels)
    require_pool(settings)
    if measured is not None:
        from tickets_batch.cli.plan_measure import measure_and_show

        measure_and_show(
            settings, chosen(settings, (measured,))[0], date, every_row, input, not unwatched, wants_json=wants_json
        )
        return exit_codes.COMPLETED
    now = datetime.now(UTC)
    planned = planned_pools(settings, chosen(settings, pools), ticket_seconds, now)
    night = _night(settings, planned, tickets, deadline, start, now)
    if wants_json:
        click.echo(json.dumps(plan_as_json(planned, night, now), indent=2))
    else:
        click.echo("\n".join(plan_in_words(planned, night, settings.zone)))
    return exit_codes.COMPLETED


def chosen(settings: Settings, names: Sequence[str]) -> list[Pool]:
    """The pools of these names, all where there is none. Raises SettingsError."""
    known = {pool.name: pool for pool in settings.pool}
    if unknown := [name for name in names if name not in known]:
        raise SettingsError(f"there is no pool {unknown[0]}; the settings have {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names or known)]


def planned_pools(
    settings: Settings, pools: Sequence[Pool], ticket_seconds: float | None, now: datetime
) -> list[PlannedPool]:
    """The pools with what is stored of them, or what stands in for it."""
    stored, loads = _stored(settings, pools, now)
    return [
        PlannedPool(
            name=pool.name,
            model=pool.model,
            capacity=capacity_of(pool),
            ttft_target_seconds=pool.ttft_target_seconds,
            basis=_basis(settings, pool, stored.get(pool.name), ticket_seconds),
            hours=SharedHours.of(pool.shared_hours, settings.zone),
            usual=UsualLoad.of(loads.get(pool.name, ()), settings.zone),
            cost_per_hour=pool.cost_per_hour,
            is_blind=is_blind(pool),
        )
        for pool in pools
    ]


def last_week(settings: Settings, pool: Pool, now: datetime) -> list[LoadSample]:
    """What is stored of a pool's chat."""
    return _stored(settings, (pool,), now)[1].get(pool.name, [])


def _stored(
    settings: Settings, pools: Sequence[Pool], now: datetime
) -> tuple[Mapping[str, StoredCurve], Mapping[str, list[LoadSample]]]:
    if is_missing(settings):
        return {}, {}
    with opened(settings) as db:
        found = {pool.name: curves.latest(db, pool.name) for pool in pools}
        loads = {pool.name: samples.between(db, pool.name, now - LAST_WEEK, now) for pool in pools}
    return {name: curve for name, curve in found.items() if curve is not None}, loads


def _basis(settings: Settings, pool: Pool, stored: StoredCurve | None, ticket_seconds: float | None) -> Basis:
    slots = max(1, pool.capacity.slots)
    if ticket_seconds is not None:
        steps = tuple(_given(number, ticket_seconds) for number in sorted({1, slots}))
        default = sum(DEFAULT_LENGTHS)
        curve = Curve(steps, *DEFAULT_LENGTHS, default, default, "given")
        return Basis(curve, Origin.GIVEN, f"each ticket takes {ticket_seconds:g} s, however many are in flight")
    why = "nothing was measured yet"
    if stored is not None and stored.model != pool.model:
        why = f"{stored.model} was measured here, not {pool.model}"
    elif stored is not None:
        try:
            curve = Curve.from_json(stored.detail)
            when = shown_instant(stored.measured_at, settings.zone)
            return Basis(curve, Origin.MEASURED, f"{when}, with {curve.tickets_from}")
        except UnreadableCurve as error:
            why = str(error)
    return Basis(
        _default_curve(slots),
        Origin.DEFAULT,
        f"{why}; a 7B model on one middle GPU stands in, with tickets of {DEFAULT_LENGTHS[0]} tokens in and "
        f"{DEFAULT_LENGTHS[1]} out: plan --measure {pool.name} puts your own numbers here",
    )


def _default_curve(slots: int) -> Curve:
    numbers = sorted({1 << power for power in range(slots.bit_length())} | {slots})
    profile = replace(EngineProfile(), slots=slots, step_token_budget=max(2048, 2 * slots))
    return played(profile, numbers, *DEFAULT_LENGTHS)


def _given(number: int, ticket_seconds: float) -> Step:
    per_second = number / ticket_seconds
    prompt, output = DEFAULT_LENGTHS
    return Step(
        in_flight=number,
        seconds=0.0,
        tickets=0,
        tickets_per_second=per_second,
        prompt_tokens_per_second=per_second * prompt,
        completion_tokens_per_second=per_second * output,
        ticket_seconds_p50=ticket_seconds,
        ticket_seconds_p95=ticket_seconds,
    )


def _night(
    settings: Settings,
    planned: Sequence[PlannedPool],
    tickets: int | None,
    deadline: str | None,
    start: str | None,
    now: datetime,
) -> Night | None:
    if tickets is None:
        return None
    starts_at = next_occurrence(start, settings.zone, now) if start else now
    return Night(planned, tickets, starts_at, deadline_from(deadline or settings.deadline, settings.zone, starts_at))
