"""Plans side by side: each lane is a process with a world of its own, in which it runs one plan after another.

A plan waits most of its time. What it does in a lane is what it does alone: nothing is shared but the machine.
"""

import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from tests.chaos.judge import judge, may_be_repeated, most_at_engine, repeated
from tests.chaos.plan import Plan
from tests.chaos.run import play
from tests.chaos.world import SLOTS, World
from tests.support.chat import outcomes
from tests.support.night import CHECKOUT

STOP_SECONDS = 60.0  # for a lane to stop everything of its own


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one plan: the judge's complaints, and what was survived where there are none."""

    plan: Plan
    seconds: float
    complaints: tuple[str, ...]
    survived: tuple[str, ...] = ()
    seen: str = ""
    more: tuple[str, ...] = ()  # what else is worth a line

    def __str__(self) -> str:
        plan = self.plan
        faults = ", ".join(f"{fault.at_seconds:.1f} {fault.name}" for fault in plan.faults)
        word = "FAILED" if self.complaints else "passed"
        head = f"seed {plan.seed} {word} in {self.seconds:.1f} s on {plan.database}: {faults}; {self.seen}"
        return "\n".join([head, *(f"  {line}" for line in (*self.complaints, *self.more))])


def run_all(plans: Iterable[Plan], checkout: Path = CHECKOUT, lanes: int = 1) -> Generator[Verdict, None, None]:
    """Judge each plan as it ends; those on one kind of database after those on the other, as a world has one.

    Whoever stops asking, or is stopped, leaves nothing running. Raises RuntimeError when a lane has ended by itself.
    """
    left = sorted(plans, key=lambda plan: plan.database)
    began: dict[Connection, SpawnProcess] = {}
    try:
        for number in range(min(lanes, len(left))):
            end, process = _begin(number, checkout)
            began[end] = process
            end.send(left.pop(0))
        busy = list(began)
        while busy:
            ready = wait(busy)
            for end in [each for each in busy if each in ready]:
                try:
                    yield end.recv()
                except EOFError:
                    raise RuntimeError("a lane ended by itself: what it wrote is above") from None
                if left:
                    end.send(left.pop(0))
                else:
                    busy.remove(end)
                    end.close()  # it is not needed any more, and stops by itself
    finally:
        _end(began)


def _begin(number: int, checkout: Path) -> tuple[Connection, SpawnProcess]:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, checkout, number), name=f"lane {number}")
    process.start()
    theirs.close()
    return ours, process


def _end(lanes: dict[Connection, SpawnProcess]) -> None:
    for end, process in lanes.items():
        if not end.closed:
            process.terminate()
    for process in lanes.values():
        process.join(STOP_SECONDS)


def _serve(end: Connection, checkout: Path, number: int) -> None:
    """A lane's life: plans come in, verdicts go out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who has begun us, and that one tells us
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with ExitStack() as stack:
        world: World | None = None
        while (plan := _next(end)) is not None:
            if world is not None and world.kind != plan.database:
                stack.close()
                world = None
            began = time.monotonic()
            try:
                world = world or stack.enter_context(World(plan.database, checkout, number))
            except Exception as error:
                said = f"no world began: {type(error).__name__}: {error}"
                end.send(Verdict(plan, time.monotonic() - began, (said,)))
                continue
            verdict = _run(world, plan)
            end.send(verdict)
            if verdict.complaints or _leaves_clocks_apart(plan):  # what is wrong in there must not befall the next
                stack.close()
                world = None


def _next(end: Connection) -> Plan | None:
    with suppress(EOFError):
        plan: Plan = end.recv()
        return plan
    return None


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _leaves_clocks_apart(plan: Plan) -> bool:
    """On SQLite a process keeps to a stepped clock until it reads it again, and judges nothing for a while after."""
    return plan.database == "sqlite" and any(fault.kind == "clock step" for fault in plan.faults)


def _run(world: World, plan: Plan) -> Verdict:
    began = time.monotonic()
    try:
        evidence = play(world, plan)
    except Exception as error:
        said = (f"the run came to no end: {type(error).__name__}: {error}", f"logs: {_keep_logs(world, plan)}")
        return Verdict(plan, time.monotonic() - began, said)
    seconds = time.monotonic() - began
    complaints = tuple(judge(evidence))
    states = Counter(job.state.value for job in evidence.jobs)
    felt = outcomes(evidence.chat)
    seen = "; ".join(
        [
            ", ".join(f"{count} {state}" for state, count in sorted(states.items())),
            "chat " + ", ".join(f"{count} {outcome.value}" for outcome, count in sorted(felt.items())),
            f"{repeated(evidence)} paid for twice of {may_be_repeated(evidence)} that may be",
            f"at most {most_at_engine(evidence)} of {SLOTS} slots",
            f"load {os.getloadavg()[0]:.1f}",
        ]
    )
    if not complaints:
        survived = tuple(incident.fault.name for incident in evidence.incidents if incident.fault in plan.faults)
        unasked = [
            f"the machine did: {incident}" for incident in evidence.incidents if incident.fault not in plan.faults
        ]
        return Verdict(plan, seconds, (), survived, seen, (*unasked, *evidence.ended))
    kept = _keep_logs(world, plan)
    more = (*map(str, evidence.incidents), *evidence.ended, f"logs: {kept}")
    verdict = Verdict(plan, seconds, complaints, (), seen, more)
    (kept / "verdict").write_text(f"{verdict}\n", encoding="utf-8")
    return verdict


def _keep_logs(world: World, plan: Plan) -> Path:
    kept = Path(tempfile.gettempdir()) / f"chaos-seed-{plan.seed}"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    for log in world.folder.glob("*.err"):
        shutil.copy(log, kept)
    return kept
