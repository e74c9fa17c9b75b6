"""`python -m tests.chaos SEED` runs one plan again, and `--plans N` many; they end with 1 where a judge complains."""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.judge import judge, may_be_repeated, most_at_engine, repeated
from tests.chaos.plan import DatabaseKind, Plan, plan_of
from tests.chaos.run import play
from tests.chaos.world import SLOTS, World
from tests.support.chat import outcomes
from tests.support.night import CHECKOUT


def main() -> int:
    """The exit code."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # and leave nothing running
    options = _parser().parse_args()
    first = options.first if options.seed is None else options.seed
    seeds = range(first, first + (options.plans if options.seed is None else 1))
    plans = [plan_of(seed) for seed in seeds]
    if options.show:
        print("\n".join(map(str, plans)))
        return 0
    survived: Counter[str] = Counter()
    failed: list[int] = []
    for verdict in run_all(plans, options.checkout):
        survived.update(verdict.survived)
        failed += [verdict.plan.seed] if verdict.complaints else []
    for name, count in sorted(survived.items()):
        print(f"{count:5}  {name}")
    print(f"{len(plans) - len(failed)} of {len(plans)} plans passed, {survived.total()} faults survived")
    for seed in failed:
        print(f"failed: python -m tests.chaos {seed}")
    return int(bool(failed))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one plan: the judge's complaints, and what was survived where there are none."""

    plan: Plan
    complaints: tuple[str, ...]
    survived: tuple[str, ...] = ()


def run_all(plans: Iterable[Plan], checkout: Path = CHECKOUT) -> Iterator[Verdict]:
    """Run plans in one world for each kind of database, and judge each as it ends."""
    ordered = sorted(plans, key=lambda plan: plan.database)
    kinds: tuple[DatabaseKind, ...] = ("postgresql", "sqlite")
    for kind in kinds:
        mine = [plan for plan in ordered if plan.database == kind]
        with ExitStack() as stack:
            world: World | None = None
            for plan in mine:
                if world is None:
                    world = stack.enter_context(World(kind, checkout))
                    if not world.disk.can_be_filled:
                        print("no disk is filled here: mounting a small one takes rights that this user does not have")
                verdict = _run(world, plan)
                yield verdict
                if verdict.complaints or _leaves_clocks_apart(plan):  # what is wrong in there must not befall the next
                    stack.close()
                    world = None


def _leaves_clocks_apart(plan: Plan) -> bool:
    """On SQLite a process keeps to a stepped clock until it reads it again, and judges nothing for a while after."""
    return plan.database == "sqlite" and any(fault.kind == "clock step" for fault in plan.faults)


def _run(world: World, plan: Plan) -> Verdict:
    print(plan, flush=True)
    began = time.monotonic()
    survived: tuple[str, ...] = ()
    try:
        evidence = play(world, plan)
    except Exception as error:
        complaints = [f"the run came to no end: {type(error).__name__}: {error}"]
    else:
        complaints = judge(evidence)
        survived = () if complaints else tuple(incident.fault.name for incident in evidence.incidents)
        states = Counter(job.state.value for job in evidence.jobs)
        felt = {outcome.value: count for outcome, count in outcomes(evidence.chat).items()}
        print(f"  {time.monotonic() - began:.1f} s; tickets {dict(states)}; chat {felt}", end="; ")
        print(f"{repeated(evidence)} answers paid for twice of {may_be_repeated(evidence)} that may be", end="; ")
        print(f"at most {most_at_engine(evidence)} at an engine of {SLOTS} slots")
        for line in evidence.ended:
            print(f"  {line}")
    for complaint in complaints:
        print(f"  COMPLAINT {complaint}")
    if complaints:
        print(f"  logs: {_keep_logs(world, plan)}")
    sys.stdout.flush()
    return Verdict(plan, tuple(complaints), survived)


def _keep_logs(world: World, plan: Plan) -> Path:
    kept = Path(tempfile.gettempdir()) / f"chaos-seed-{plan.seed}"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    for log in world.folder.glob("*.err"):
        shutil.copy(log, kept)
    return kept


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("seed", nargs="?", type=int, help="run this plan alone")
    parser.add_argument("--plans", type=int, default=200, metavar="N", help="how many plans (default: 200)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first of them (default: 0)")
    parser.add_argument("--show", action="store_true", help="print the plans and run nothing")
    parser.add_argument("--checkout", type=Path, default=CHECKOUT, help="where the product is taken from")
    return parser


if __name__ == "__main__":
    sys.exit(main())
