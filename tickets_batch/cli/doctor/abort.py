"""Whether a request that is cut leaves its slot at the engine, and how soon: withdrawing for the chat relies on it."""

import asyncio
import time
from collections.abc import Callable

from jobs.outcomes import Attempt
from scheduler.signals.engine import EngineMetrics
from scheduler.signals.fetch import SignalUnavailable
from scheduler.signals.names import NAMES
from tickets_batch.cli.doctor.check import Check
from tickets_batch.settings import EngineSignal, Pool
from workers.client import ModelClient
from workers.gate import ABORT_SECONDS, ABORT_SECONDS_ELSEWHERE

FREED_SECONDS = 4.0
SEEN_SECONDS = 2.0  # so long an engine may take to show a request that runs
NEEDED_SECONDS = 2 * FREED_SECONDS
LOOK_SECONDS = 0.05
WHETHER = "whether a request that is cut leaves its slot"

COUNTING = [{"role": "user", "content": "Count from one to one thousand in words, without a pause."}]
COUNTING_TOKENS = 512
FREE_TEXT = {"type": "text"}


async def cut_one(pool: Pool, client: ModelClient, most_seconds: float) -> Check:
    """Begin one long answer, cut it at its first token, and watch the engine's count of requests."""
    about = f"pool {pool.name} abort"
    if pool.engine not in NAMES:
        return Check(about, "ok", f"{WHETHER} cannot be seen: {pool.engine} shows no metrics")
    addresses = [signal for signal in pool.signal if isinstance(signal, EngineSignal)]
    metrics = [EngineMetrics(pool, signal) for signal in addresses or [EngineSignal(type="engine")]]
    try:
        before = await _at_work(metrics)
        if why := await _begun_and_cut(client, metrics, before, most_seconds - FREED_SECONDS - SEEN_SECONDS):
            return Check(about, "warning", f"{WHETHER} was not seen: {why}")
        took_seconds = await _until(FREED_SECONDS, lambda now: now <= before, metrics)
    except SignalUnavailable as error:
        return Check(about, "warning", f"{WHETHER} cannot be seen: {error}")
    finally:
        for each in metrics:
            await each.aclose()
    return judged(about, took_seconds, ABORT_SECONDS.get(pool.engine, ABORT_SECONDS_ELSEWHERE), others=before)


def judged(about: str, took_seconds: float | None, allowed_seconds: float, others: int) -> Check:
    """What it means: None seconds is never; for `allowed_seconds` the ledger keeps the room of what was withdrawn."""
    busy = " (others were at work, so this is not certain)" if others else ""
    if took_seconds is None:
        words = (
            f"a request that was cut still ran after {FREED_SECONDS:g} s{busy}, unless others came meanwhile: what is "
            "withdrawn for the chat keeps its slot. Let the engine, and a proxy before it, stop when the client goes"
        )
        return Check(about, "warning", words)
    words = f"a request that is cut leaves its slot within {max(took_seconds, LOOK_SECONDS):.2f} s{busy}"
    if took_seconds > allowed_seconds:
        late = f"later than the {allowed_seconds:g} s for which its room is kept: meanwhile the chat may have less room"
        return Check(about, "warning", f"{words}, {late}")
    return Check(about, "ok", words)


async def _begun_and_cut(
    client: ModelClient, metrics: list[EngineMetrics], before: int, first_token_seconds: float
) -> str | None:
    """None when a request ran and was cut, else why not. Raises SignalUnavailable; leaves nothing in flight."""
    begun = asyncio.Event()
    call = client.classify(COUNTING, FREE_TEXT, COUNTING_TOKENS, parse=str, on_first_token=begun.set)
    answer, first = asyncio.create_task(call), asyncio.create_task(begun.wait())
    try:
        await asyncio.wait((answer, first), timeout=first_token_seconds, return_when=asyncio.FIRST_COMPLETED)
        if not begun.is_set():
            return _came_to(answer.result()) if answer.done() else "it had no first token in time"
        if await _until(SEEN_SECONDS, lambda now: now > before, metrics) is None:
            return "the engine's metrics did not show it (is it one of several behind base_url?)"
        return "it ended before it could be cut" if answer.done() else None
    finally:
        first.cancel()
        answer.cancel()
        await asyncio.gather(answer, first, return_exceptions=True)


def _came_to(attempt: Attempt) -> str:
    return f"it came to {attempt.symptom} ({attempt.detail})" if attempt.symptom else "it ended before it could be cut"


async def _at_work(metrics: list[EngineMetrics]) -> int:
    """Requests that run or wait at the engines now. Raises SignalUnavailable."""
    readings = [await each.read() for each in metrics]
    return sum(reading.running + reading.waiting for reading in readings)


async def _until(seconds: float, is_so: Callable[[int], bool], metrics: list[EngineMetrics]) -> float | None:
    """Seconds until the number at work is so, None where it does not become so in time. Raises SignalUnavailable."""
    began = time.monotonic()
    while True:
        count, took_seconds = await _at_work(metrics), time.monotonic() - began
        if is_so(count):
            return took_seconds
        if took_seconds > seconds:
            return None
        await asyncio.sleep(LOOK_SECONDS)
