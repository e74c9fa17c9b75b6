"""What `doctor` says of the sources by which a pool sees its chat."""

import asyncio
from collections.abc import Iterator
from functools import partial

from scheduler.pools import capacity_of
from scheduler.signals.engine import EngineMetrics
from scheduler.signals.poll import STALE_SECONDS
from scheduler.signals.probe import Probe
from scheduler.signals.prometheus import Prometheus
from scheduler.signals.sources import named_signals
from scheduler.snapshot import Snapshot
from tickets_batch.cli.doctor.check import Check, tried
from tickets_batch.settings import EngineSignal, LedgerSignal, Pool, PrometheusSignal, Signal
from tickets_batch.words import counted

BLIND = "blind: batch will stay at its floor"


def check_signals(pool: Pool, snapshot: Snapshot | None) -> Iterator[Check]:
    """Each source tried out once, then what the pool is without one that works.

    `snapshot` is the ledger's, None where no Redis answers yet: then a gateway may still beat when there is one.
    """
    about = f"pool {pool.name}"
    is_dedicated = capacity_of(pool).is_dedicated
    can_see = False
    for name, signal in named_signals(pool.signal):
        check, sees = _look(f"{about} {name}", signal, pool, snapshot)
        can_see = can_see or sees
        yield check
    if is_dedicated:
        yield Check(about, "ok", "dedicated: all of it is batch's own, and no signal is needed")
    elif not pool.signal:
        yield Check(about, "problem", f"{BLIND}; a pool with no [[pool.signal]] is blind to the chat: add one")
    elif not can_see:
        yield Check(about, "problem", f"{BLIND}, for none of its signals can be read")


def _look(about: str, signal: Signal, pool: Pool, snapshot: Snapshot | None) -> tuple[Check, bool]:
    """The check, and whether this source can see the chat."""
    if isinstance(signal, LedgerSignal):
        return _ledger(about, snapshot)
    check = tried(about, partial(_ask, signal), pool)
    return check, check.level != "problem"


def _ledger(about: str, snapshot: Snapshot | None) -> tuple[Check, bool]:
    start = "start tickets-batch gateway, or use the guard in the application"
    if snapshot is None:
        return Check(about, "warning", f"no ledger to ask yet: when Redis answers, {start}"), True
    age = snapshot.beat_age_seconds
    if age is None:
        return Check(about, "warning", f"no gateway or guard has ever beaten: {start}"), False
    if age >= STALE_SECONDS:
        return Check(about, "warning", f"the last gateway or guard was heard {age:.0f} s ago: {start}"), False
    return Check(about, "ok", f"a gateway or guard beats, {snapshot.interactive.slots} chat requests in flight"), True


def _ask(signal: Signal, pool: Pool) -> str | Check:
    """One question to a source. Raises SignalUnavailable, SettingsError."""
    if isinstance(signal, EngineSignal):
        return asyncio.run(_engine(EngineMetrics(pool, signal)))
    if isinstance(signal, PrometheusSignal):
        return asyncio.run(_prometheus(Prometheus(signal)))
    return asyncio.run(_probe(Probe(pool)))


async def _engine(metrics: EngineMetrics) -> str:
    try:
        reading = await metrics.read()
    finally:
        await metrics.aclose()
    usage = "" if reading.kv_usage is None else f", {reading.kv_usage:.0%} of the KV cache in use"
    missing = f"; without {' and '.join(reading.missing)} it tells less" if reading.missing else ""
    running = counted(reading.running, "request")
    return f"{metrics.url} shows {running} running, {reading.waiting} waiting{usage}{missing}"


async def _prometheus(prometheus: Prometheus) -> str:
    try:
        answers = await prometheus.ask()
    finally:
        await prometheus.aclose()
    found = {
        "in flight": answers.in_flight,
        "waiting": answers.waiting,
        "s to the first token": answers.ttft_seconds,
    }
    shown = ", ".join(f"{value:g} {what}" for what, value in found.items() if value is not None)
    return f"{prometheus.url} answers: {shown or 'nobody to wait for a first token'}"


async def _probe(probe: Probe) -> str:
    try:
        seconds = await probe.ask()
    finally:
        await probe.aclose()
    return f"a request of one token was answered after {seconds:.2f} s"
