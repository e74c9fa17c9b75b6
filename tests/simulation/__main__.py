"""Prints the table, for example of `--shape burst --tickets short --seconds 1200 --seeds 2 --rows ours,caps`."""

import argparse
import ast
import signal
import sys
import time
from dataclasses import replace
from typing import Any

from scheduler.simulation.site import DOOR_SECONDS
from scheduler.simulation.tickets import KINDS
from tests.simulation.chats import SHAPES, TABLE_SHAPES
from tests.simulation.sites import SITES
from tests.simulation.table import GROUPS, make_tables, render


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--site", default="middle", help=", ".join(SITES))
    parser.add_argument("--shape", default=",".join(TABLE_SHAPES), help=f"some of {', '.join(SHAPES)}")
    parser.add_argument("--tickets", default=",".join(KINDS), help="some of %(default)s")
    parser.add_argument("--rows", default=",".join(GROUPS), help="groups of rows, some of %(default)s")
    parser.add_argument(
        "--door", type=float, default=DOOR_SECONDS, metavar="SECONDS",
        help="how long chat waits for room before it is refused, in every row; inf: it never is",
    )  # fmt: skip
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--set", dest="constants", type=_constant, action="append", default=[], metavar="MODULE.NAME=VALUE",
        help="change a constant of a module for ours; a name imported from there by another module keeps its value",
    )  # fmt: skip
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the processes go with this one
    for kind in asked.tickets.split(","):
        for shape in asked.shape.split(","):
            began = time.perf_counter()
            (table,) = make_tables(
                replace(SITES[asked.site], door_seconds=asked.door),
                [shape],
                [kind],
                asked.rows.split(","),
                seeds=asked.seeds,
                seconds=asked.seconds,
                constants=asked.constants,
            )
            print(render(table), f"({time.perf_counter() - began:.0f} s)\n", flush=True)


def _constant(text: str) -> tuple[str, str, Any]:
    path, _, value = text.partition("=")
    module, _, name = path.rpartition(".")
    return module, name, ast.literal_eval(value)


if __name__ == "__main__":
    main()
