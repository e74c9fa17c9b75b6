"""`doctor`: every connection and setting, tried out."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial

import click

from jobs.answer import parse_answer
from jobs.days import business_day
from jobs.intake.source import open_source
from jobs.outcomes import Attempt
from jobs.prompt import build_messages, response_format
from jobs.spec import ClassificationSpec
from jobs.store import schema, services
from scheduler.snapshot import Snapshot
from tickets_batch.cli import exit_codes
from tickets_batch.cli.check import Check, tried
from tickets_batch.cli.database import connected, is_missing
from tickets_batch.cli.frame import Call, verb
from tickets_batch.cli.ledgers import Ledgers
from tickets_batch.cli.text import services_in_words
from tickets_batch.errors import UserError
from tickets_batch.local import valkey
from tickets_batch.local.home import Home
from tickets_batch.settings import Pool, Settings

SAMPLE = ("Where is my parcel?", "I ordered nine days ago and nothing has come. When will it arrive?")


@verb()
@click.option("--json", "wants_json", is_flag=True, help="One JSON object on stdout.")
@click.pass_obj
def doctor_command(call: Call, wants_json: bool) -> int:
    """Check every connection and setting, and make one small call to every model. Exits 1 when something is wrong."""
    checks = []
    for check in examine(call.settings()):
        checks.append(check)
        if not wants_json:
            click.echo(f"{check.level:<8} {check.about:<12} {check.words}")
    is_well = all(check.level != "problem" for check in checks)
    if wants_json:
        click.echo(json.dumps({"ok": is_well, "checks": [asdict(check) for check in checks]}, indent=2))
    return exit_codes.COMPLETED if is_well else exit_codes.ERROR


def examine(settings: Settings) -> Iterator[Check]:
    """Try everything out, the cheapest first; each check as soon as it is done."""
    local_time = datetime.now(settings.zone)
    yield Check("time", "ok", f"{local_time:%Y-%m-%d %H:%M} in {settings.timezone}, deadline {settings.deadline}")
    yield tried("home", _home, settings)
    yield tried("database", _database, settings)
    yield tried("redis", _redis, settings)
    yield tried("services", _services, settings)
    yield tried("source", _source, settings)
    spec, check = _classification(settings)
    yield check
    if not settings.pool:
        words = "none is configured: write a [[pool]] in tickets-batch.toml, which only submit --model does without"
        yield Check("pool", "problem", words)
    snapshots = _snapshots(settings)
    for pool in settings.pool:
        if spec is not None:
            yield tried(f"pool {pool.name}", partial(_model, spec), pool)
        yield from _signals(pool, snapshots.get(pool.name))


def _home(settings: Settings) -> str:
    home = Home(settings.home)
    home.make()
    return f"{home.path} can be written"


def _database(settings: Settings) -> str:
    if is_missing(settings):
        return f"SQLite, {settings.database_file}: the first submit makes it"
    with connected(settings) as db:
        schema.require_current(db)
        return f"{db.url.render_as_string(hide_password=True)} answers, version {schema.VERSION}"


def _redis(settings: Settings) -> str:
    if settings.redis_url is None:
        valkey.server_path()
        url = Home(settings.home).redis_url()
        if valkey.answers(url):
            return "embedded, running"
        if valkey.listens(url):
            raise UserError("the embedded server is there but does not answer: end tickets-batch up and start it again")
        return "embedded, started when it is needed"
    with Ledgers(settings) as ledgers:
        ledgers.require()
    return "answers"


def _services(settings: Settings) -> str | Check:
    if is_missing(settings):
        return "none is running yet"
    with connected(settings) as db:
        schema.require_current(db)
        at_work = services.alive(db)
    if {"scheduler", "worker"} <= {service.role for service in at_work}:
        return f"{services_in_words(at_work)} alive"
    if settings.redis_url is None:
        return f"{services_in_words(at_work)} alive; submit --wait and up run them"
    return Check("services", "warning", f"{services_in_words(at_work)} alive: start tickets-batch scheduler and worker")


def _source(settings: Settings) -> str:
    day = business_day("today", settings.zone, datetime.now(UTC))
    return f"{open_source(settings.source, day).describe()} can be read, for {day}"


def _classification(settings: Settings) -> tuple[ClassificationSpec | None, Check]:
    about = "labels"
    if settings.classification is None:
        words = "none are configured: write [classification] labels in tickets-batch.toml"
        return None, Check(about, "problem", words)
    try:
        spec = ClassificationSpec.of(settings.classification)
    except UserError as error:
        return None, Check(about, "problem", " ".join(str(error).splitlines()))
    return spec, Check(about, "ok", ", ".join(spec.labels))


def _snapshots(settings: Settings) -> Mapping[str, Snapshot]:
    """One of each pool's ledger; none where Redis is away, which the check of it has told."""
    try:
        with Ledgers(settings) as ledgers:
            return ledgers.snapshots()
    except UserError:
        return {}


def _signals(pool: Pool, snapshot: Snapshot | None) -> Iterator[Check]:
    from tickets_batch.cli.signal_checks import check_signals

    return check_signals(pool, snapshot)


def _model(spec: ClassificationSpec, pool: Pool) -> str | Check:
    """One call like those of the night, outside admission: a single short ticket."""
    from workers.client import ModelClient

    async def call() -> Attempt:
        client = ModelClient(pool, at_once=1)
        try:
            messages = build_messages(spec, *SAMPLE)
            parse = partial(parse_answer, spec)
            return await client.classify(messages, response_format(spec), spec.max_output_tokens, parse=parse)
        finally:
            await client.aclose()

    attempt = asyncio.run(call())
    about = f"pool {pool.name}"
    if attempt.symptom is not None:
        status = f" (HTTP {attempt.http_status})" if attempt.http_status else ""
        return Check(about, "problem", f"{pool.base_url}: {attempt.symptom}{status}: {attempt.detail}")
    if not attempt.usage.total:
        words = f"{pool.model} answered, but reports no usage: tokens are booked as estimated"
        return Check(about, "warning", words)
    first = f"first token after {attempt.ttft_seconds:.2f} s, " if attempt.ttft_seconds is not None else ""
    return (
        f"{pool.model} at {pool.base_url} answered a sample ticket with {attempt.label!r} in {attempt.seconds:.2f} s, "
        f"{first}{attempt.usage.prompt_tokens} prompt tokens"
    )
