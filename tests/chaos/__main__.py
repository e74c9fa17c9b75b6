"""`python -m tests.chaos SEED ...` runs plans again, and `--plans N` many; they end with 1 where a judge complains."""

import argparse
import signal
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from tests.chaos.lanes import Verdict, run_all
from tests.chaos.plan import plan_of
from tests.support.night import CHECKOUT


def main() -> int:
    """The exit code."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # and leave nothing running
    options = _parser().parse_args()
    plans = [plan_of(seed) for seed in options.seeds or range(options.first, options.first + options.plans)]
    if options.show:
        print("\n".join(map(str, plans)))
        return 0
    verdicts: list[Verdict] = []
    began = time.monotonic()
    try:
        with closing(run_all(plans, options.checkout, options.lanes)) as judged:
            for verdict in judged:
                verdicts.append(verdict)
                print(f"{len(verdicts)}/{len(plans)} {verdict}", flush=True)
    finally:  # also of those that were judged before it was stopped
        _print_summary(verdicts, len(plans), time.monotonic() - began)
    return int(any(verdict.complaints for verdict in verdicts))


def _print_summary(verdicts: list[Verdict], asked: int, seconds: float) -> None:
    survived = Counter(name for verdict in verdicts for name in verdict.survived)
    failed = [verdict.plan.seed for verdict in verdicts if verdict.complaints]
    for name, count in sorted(survived.items()):
        print(f"{count:5}  {name}")
    print(f"{len(verdicts) - len(failed)} of {asked} plans passed, {len(failed)} failed, ", end="")
    print(f"{survived.total()} faults survived, in {seconds / 60:.1f} min")
    for seed in failed:
        print(f"failed: python -m tests.chaos {seed}")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("seeds", nargs="*", type=int, metavar="SEED", help="run these plans")
    parser.add_argument("--plans", type=int, default=200, metavar="N", help="how many plans (default: 200)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first of them (default: 0)")
    parser.add_argument("--lanes", type=int, default=1, metavar="N", help="how many run at one time (default: 1)")
    parser.add_argument("--show", action="store_true", help="print the plans and run nothing")
    parser.add_argument("--checkout", type=Path, default=CHECKOUT, help="where the product is taken from")
    return parser


if __name__ == "__main__":
    sys.exit(main())
