"""`plan --measure`: the pool is measured, the curve stored and shown, and lines of settings proposed."""

import asyncio
import csv
import json
import random
import textwrap
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from jobs.days import business_day
from jobs.intake.source import open_source
from jobs.spec import ClassificationSpec
from jobs.store import curves
from jobs.store.curves import StoredCurve
from jobs.ticket import Ticket
from scheduler.curve import Curve
from scheduler.ledger import Ledger
from scheduler.limit import Rule
from scheduler.pool_reading import quantile
from scheduler.pools import capacity_of
from scheduler.proposal import Proposal, propose
from tickets_batch.cli.database import opened
from tickets_batch.cli.plan import last_week
from tickets_batch.cli.plan_curve import curve_in_words
from tickets_batch.cli.text import COLUMNS
from tickets_batch.cli.times import iso
from tickets_batch.errors import SettingsError, UserError
from tickets_batch.local.home import Home
from tickets_batch.settings import Pool, Settings, reveal
from tickets_batch.words import counted
from workers.measure.measurement import Measurement
from workers.measure.texts import Texts

SENT = 2_000  # different tickets at most; then they begin anew
LOOKED_AT = 100_000  # rows of the source among which they are picked


def measure_and_show(
    settings: Settings,
    pool: Pool,
    date: str,
    every_row: bool,
    source: Path | None,
    is_watched: bool,
    *,
    wants_json: bool,
) -> None:
    """Measure a pool, store its curve, print all of it. Raises UserError; then nothing is stored."""
    texts = _texts(settings, date, every_row, source)
    with opened(settings) as db:
        click.echo(f"measuring pool {pool.name} at {pool.base_url} with {texts.described}", err=True)
        curve = asyncio.run(_measured(settings, pool, texts, is_watched))
        stored = curves.save(db, pool.name, pool.model, curve.as_json())
    proposal = propose(curve, capacity_of(pool), pool.ttft_target_seconds, _chat_peak(settings, pool))
    if wants_json:
        click.echo(json.dumps(_as_json(stored, curve, pool, proposal), indent=2))
        return
    click.echo("\n".join(curve_in_words(curve, pool.ttft_target_seconds)))
    click.echo(f"\nfor pool {pool.name} in tickets-batch.toml:\n\n{proposal.as_toml()}\n")
    for reason in proposal.reasons:
        click.echo(textwrap.fill(reason, COLUMNS, initial_indent="# ", subsequent_indent="#   "))


async def _measured(settings: Settings, pool: Pool, texts: Texts, is_watched: bool) -> Curve:
    url = reveal(settings.redis_url) if settings.redis_url is not None else Home(settings.home).redis_url()
    ledger = Ledger.connect(url, pool.name, capacity_of(pool)) if url else None
    measurement = Measurement(
        pool, texts, ledger=ledger, say=lambda line: click.echo(line, err=True), is_watched=is_watched
    )
    return await measurement.run()


def _texts(settings: Settings, date: str, every_row: bool, source: Path | None) -> Texts:
    """The tickets to send: a fair pick of the source's, else the demo's."""
    if settings.classification is None:
        raise SettingsError(
            "no labels are configured: write [classification] labels in tickets-batch.toml, or add --labels a,b,c"
        )
    spec = ClassificationSpec.of(settings.classification)
    if source is None and settings.source.path is None and settings.source.url is None:
        rows = csv.DictReader(files("tickets_batch.demo").joinpath("tickets.csv").read_text("utf-8").splitlines())
        tickets = [(row["subject"], row["body"]) for row in rows]
        return Texts(spec, tickets, "the demo's tickets (assumed: no source is configured)")
    day = business_day(date, settings.zone, datetime.now(UTC))
    opened_source = open_source(settings.source, day, every_row=every_row, override_path=source)
    picked: list[Ticket] = []
    pick = random.Random(0)  # noqa: S311 - which tickets are sent, no secret
    count = 0
    for row in opened_source:
        if not isinstance(row, Ticket):
            continue
        count += 1
        if len(picked) < SENT:
            picked.append(row)
        elif (place := pick.randrange(count)) < SENT:
            picked[place] = row
        if count >= LOOKED_AT:
            break
    if not picked:
        whose = "at all" if every_row else f"of {day}: --date names another day, --all takes every row"
        raise UserError(f"{opened_source.describe()} has no ticket {whose}")
    pick.shuffle(picked)
    whose = "" if every_row else f", {day.date.isoformat()}"
    return Texts(
        spec,
        [(ticket.subject, ticket.body) for ticket in picked],
        f"{counted(len(picked), 'ticket')} of {opened_source.describe()}{whose}",
    )


def _chat_peak(settings: Settings, pool: Pool) -> int | None:
    """What 19 of 20 samples of the last week's chat stay within, None where there are none."""
    seen = [
        sample.interactive_slots
        for sample in last_week(settings, pool, datetime.now(UTC))
        if sample.reason != Rule.BLIND
    ]
    peak = quantile(seen, 0.95)
    return None if peak is None else round(peak)


def _as_json(stored: StoredCurve, curve: Curve, pool: Pool, proposal: Proposal) -> dict[str, Any]:
    within = curve.most_within(pool.ttft_target_seconds)
    capacity = proposal.capacity
    amounts = {
        "capacity": capacity.total,
        "protected_interactive": capacity.protected_interactive,
        "protected_batch": capacity.floor,
    }
    return {
        "pool": pool.name,
        "model": pool.model,
        "measured_at": iso(stored.measured_at),
        "curve": curve.as_json(),
        "knee": {"in_flight": curve.knee.in_flight, "tickets_per_second": curve.knee.tickets_per_second},
        "most_within_ttft_target": within.in_flight if within else None,
        "proposal": {
            **{name: {"slots": amount.slots, "tokens": amount.tokens} for name, amount in amounts.items()},
            "reasons": proposal.reasons,
            "toml": proposal.as_toml(),
        },
    }
