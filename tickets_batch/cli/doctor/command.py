"""The verb: runs the checks in their order, prints each, and says whether the night would fail."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import asdict

import click

from jobs.spec import ClassificationSpec
from scheduler.snapshot import Snapshot
from tickets_batch.cli import exit_codes
from tickets_batch.cli.doctor import clocks, house, listening, redis_server, stored
from tickets_batch.cli.doctor.check import Check, tried
from tickets_batch.cli.doctor.engine_advice import PrefillRate
from tickets_batch.cli.frame import Call, verb
from tickets_batch.cli.ledgers import Ledgers
from tickets_batch.errors import UserError
from tickets_batch.settings import Pool, Settings

AT_ONCE = 8  # things that are tried side by side; of one model, one at a time


@verb()
@click.option("--json", "wants_json", is_flag=True, help="One JSON object on stdout.")
@click.pass_obj
def doctor_command(call: Call, wants_json: bool) -> int:
    """Try every connection and setting, and every model with a few small requests, one at a time.

    Each line says what to do, if there is anything. Exits 1 when something would fail tonight, 0 with warnings.
    """
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
    """Try everything out, pools last; each check in its place, as soon as it is done."""
    with ThreadPoolExecutor(AT_ONCE, "doctor") as threads:

        def begin(about: str, attempt: Callable[[Settings], Check | str]) -> Future[Check]:
            return threads.submit(tried, about, attempt, settings)

        database, redis = begin("database", stored.database), begin("redis", redis_server.server)
        others = [begin("source", house.source), begin("sink", house.sink), begin("webhook", house.webhook)]
        yield house.time_and_zone(settings)
        yield tried("home", house.home, settings)
        yield tried("disk", house.disk, settings)
        yield tried("files", house.files, settings)
        yield from listening.addresses(settings)
        yield database.result()
        yield redis.result()
        has_database, has_redis = (one.result().level != "problem" for one in (database, redis))
        if has_redis:
            yield tried("broker", redis_server.broker, settings)
        yield from clocks.differences(settings, has_database=has_database, has_redis=has_redis)
        if has_database:
            yield tried("services", stored.at_work, settings)
        spec, labels = house.labels(settings)
        yield labels
        for other in others:
            yield other.result()
        if not settings.pool:
            words = "none is configured: write a [[pool]] in tickets-batch.toml, which only submit --model does without"
            yield Check("pool", "problem", words)
        snapshots = _snapshots(settings) if has_redis else {}
        rates = stored.prefill_rates(settings) if has_database else {}
        overloads = stored.overloads(settings) if has_database else {}

        def of_pool(pool: Pool) -> list[Check]:
            return list(_pool(spec, pool, snapshots.get(pool.name), rates.get(pool.name), overloads.get(pool.name, "")))

        yield from _side_by_side(threads, settings.pool, of_pool)


def _pool(
    spec: ClassificationSpec | None,
    pool: Pool,
    snapshot: Snapshot | None,
    measured: PrefillRate | None,
    overload: str,
) -> Iterator[Check]:
    from tickets_batch.cli.doctor import model, signals
    from tickets_batch.cli.doctor.engine_advice import second_line

    learned = snapshot.outlook.prefill_rate if snapshot is not None else 0
    rate = PrefillRate(learned, "as learned of the tickets of late") if learned else measured
    about = f"pool {pool.name}"
    if spec is not None:
        yield from model.examine(spec, pool)
    if overload:
        yield Check(f"{about} overload", "ok", overload)
    yield from signals.check_signals(pool, snapshot)
    yield Check(f"{about} defence", "ok", second_line(pool, rate))


def _side_by_side(threads: Executor, pools: tuple[Pool, ...], look: Callable[[Pool], list[Check]]) -> Iterator[Check]:
    """The checks of all pools in their order; a model is asked one thing at a time, different ones at once."""
    of_address: dict[str, list[Pool]] = defaultdict(list)
    for pool in pools:
        of_address[pool.base_url].append(pool)
    with ThreadPoolExecutor(AT_ONCE, "doctor") as threads:
        under_way = [
            (same, threads.submit(lambda same: [look(pool) for pool in same], same)) for same in of_address.values()
        ]
        found = {
            pool.name: checks for same, looked in under_way for pool, checks in zip(same, looked.result(), strict=True)
        }
    for pool in pools:
        yield from found[pool.name]


def _snapshots(settings: Settings) -> Mapping[str, Snapshot]:
    """One of each pool's ledger; none where Redis is away, which the check of it has told."""
    try:
        with Ledgers(settings) as ledgers:
            return ledgers.snapshots()
    except UserError:
        return {}
