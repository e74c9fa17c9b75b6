"""Tickets per second from end to end on an engine that answers at once, beside bare loops and a plain Celery pipeline.

And that cost and memory stay flat however many they are.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import psutil  # type: ignore[import-untyped]
import pytest

from scheduler.simulation.engine.profile import EngineProfile
from tests.benchmarks.plain_celery import PlainPipeline, Workers
from tests.benchmarks.plain_loops import Make, body, http_client, library, our_client, seconds_of
from tests.benchmarks.whole_nights import Cores, Run, whole_night
from tests.engine.process import EngineProcess
from tests.support.night import LABELS
from tests.support.valkey import ValkeyServer

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]

SLOTS = 20
TICKETS = 6_000
ROUNDS = 3
LEAST_OF_BARE = 1.0
LEAST_OF_CELERY = 3.0
SIZES = (1_000, 10_000, 100_000)
LOOPS: dict[str, Make] = {"bare loop": http_client, "openai's loop": library, "our client's": our_client}
CELERY = [Workers("prefork", 2), Workers("prefork", 4), Workers("prefork", 8), Workers("threads", 20)]
TRIAL_TICKETS = 600


def bare_loop(make: Make, engine: EngineProcess) -> Run:
    process = psutil.Process(engine.pid)
    before, cores = process.cpu_times(), Cores()
    seconds, ours = seconds_of(make, engine.base_url, TICKETS, SLOTS)
    after, others = process.cpu_times(), cores.since()
    engines = after.user + after.system - before.user - before.system
    cpu_ms = {"loop": ours / TICKETS * 1e3, "engine": engines / TICKETS * 1e3}
    return Run(TICKETS / seconds, cpu_ms, max(0.0, others - (ours + engines) / seconds))


def plain_celery(valkey: ValkeyServer, engine: EngineProcess, workers: Workers, tickets: int, log: Path) -> Run:
    """From the first message to the last result in the parent; its worker is up and warm before."""
    assert valkey.process is not None
    watched = {"engine": psutil.Process(engine.pid), "valkey": psutil.Process(valkey.process.pid)}

    def cpu_seconds(pipeline: PlainPipeline) -> dict[str, float]:
        times = {role: process.cpu_times() for role, process in watched.items()}
        theirs = {role: each.user + each.system for role, each in times.items()}
        return {"worker": pipeline.cpu_seconds(), "parent": time.process_time(), **theirs}

    with PlainPipeline(valkey.url, engine.base_url, workers, log) as pipeline:
        before, cores = cpu_seconds(pipeline), Cores()
        seconds, labels = pipeline.run(body(number) for number in range(tickets))
        others, after = cores.since(), cpu_seconds(pipeline)
    assert set(labels) <= set(LABELS)
    used = {role: after[role] - before[role] for role in before}
    cpu_ms = {role: spent / tickets * 1e3 for role, spent in used.items()}
    return Run(tickets / seconds, cpu_ms, max(0.0, others - sum(used.values()) / seconds))


def typical(runs: Sequence[Run]) -> Run:
    cpu_ms = {role: median(run.cpu_ms[role] for run in runs) for role in runs[0].cpu_ms}
    return Run(median(run.rate for run in runs), cpu_ms, median(run.others for run in runs))


def test_a_night_on_an_instant_engine_beside_bare_loops_and_plain_celery(
    valkey_session: ValkeyServer, tmp_path: Path
) -> None:
    valkey, log = valkey_session, tmp_path / "celery.log"
    runs: dict[str, list[Run]] = {name: [] for name in (*LOOPS, "plain Celery", "1 worker", "2 workers")}
    with EngineProcess(EngineProfile.instant()) as engine:
        trials = {each: plain_celery(valkey, engine, each, TRIAL_TICKETS, log).rate for each in CELERY}
        best = max(trials, key=lambda each: trials[each])
        print("\nplain Celery:", ", ".join(f"{each} {rate:.0f}/s" for each, rate in trials.items()), "; best:", best)
        for number in range(ROUNDS):
            for name, make in LOOPS.items():
                runs[name].append(bare_loop(make, engine))
            runs["plain Celery"].append(plain_celery(valkey, engine, best, TICKETS, log))
            for processes, name in ((1, "1 worker"), (2, "2 workers")):
                folder = tmp_path / f"{number}-{processes}"
                runs[name].append(whole_night(folder, engine, TICKETS, processes, SLOTS)[0])
    of_bare, of_celery = ratios(runs, "bare loop"), ratios(runs, "plain Celery")
    print(f"median of {ROUNDS} rounds of {TICKETS:,} tickets, {SLOTS} at a time; CPU in ms a ticket")
    for name, of in runs.items():
        shown, all_rates = typical(of), [round(run.rate) for run in of]
        cpu = ", ".join(f"{role} {ms:.2f}" for role, ms in shown.cpu_ms.items())
        print(
            f"{name:13} {shown.rate:5.0f} tickets/s {all_rates}, "
            f"{of_bare[name]:.2f} of the bare loop, {of_celery[name]:.2f} of plain Celery\n"
            f"{'':13} CPU: {cpu}; together {sum(shown.cpu_ms.values()):.2f}; others took {shown.others:.2f} cores"
        )
    assert of_bare["2 workers"] >= LEAST_OF_BARE
    assert of_celery["2 workers"] >= LEAST_OF_CELERY


def ratios(runs: dict[str, list[Run]], base: str) -> dict[str, float]:
    """Of the rates, round by round: what others did to the machine meanwhile touches both alike."""
    return {
        name: median(run.rate / beside.rate for run, beside in zip(of, runs[base], strict=True))
        for name, of in runs.items()
    }


def test_cost_per_ticket_and_memory_stay_flat(tmp_path: Path) -> None:
    cost: dict[int, float] = {}
    memory: dict[int, float] = {}
    with EngineProcess(EngineProfile.instant()) as engine:
        for size in SIZES:
            engine.reset()
            run, meter = whole_night(tmp_path / str(size), engine, size, 2, SLOTS)
            cost[size] = sum(meter.cpu_seconds.values()) / size * 1e3
            memory[size] = meter.peak_mb["worker"]
            peaks = {role: round(mb) for role, mb in meter.peak_mb.items()}
            under_way = sum(run.cpu_ms.values())
            print(
                f"\n{size:7,} tickets: {run.rate:5.0f}/s, {under_way:.2f} ms of CPU a ticket while under way, "
                f"{cost[size]:.2f} with start and end, peak MB {peaks}",
                end="",
            )
    print()
    assert cost[SIZES[-1]] <= 1.25 * cost[10_000]
    assert memory[SIZES[-1]] <= 1.25 * memory[10_000]
