"""Plans: pure functions of their seeds, which together meet every fault."""

import os
import subprocess
import sys

from tests.chaos.plan import ENGINE_SCRIPT, EVERYTHING, PARTS, WINDOW_SECONDS, plan_of
from tests.support.night import CHECKOUT

MANY = 200


def test_a_seed_is_a_plan_in_any_process() -> None:
    asked = [sys.executable, "-m", "tests.chaos", "7", "--show"]
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    shown = subprocess.run(asked, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=True).stdout
    assert shown.strip() == str(plan_of(7))
    assert plan_of(7) != plan_of(8)


def test_two_hundred_plans_meet_every_fault() -> None:
    faults = [fault for seed in range(MANY) for fault in plan_of(seed).faults]
    met = {fault.name for fault in faults}
    assert {f"engine says {kind}" for kind in ENGINE_SCRIPT} <= met
    assert {f"kill {target}" for target in (*PARTS, EVERYTHING, "postgresql")} <= met
    assert {f"pause {target}" for target in (*PARTS, "postgresql", "valkey", "engine")} <= met
    assert {f"clock step {part}" for part in (*PARTS, EVERYTHING)} <= met
    assert {"disk full postgresql", "disk full sqlite"} <= met
    assert {"restart valkey with its data", "restart valkey without its data"} <= met
    assert {fault.kind for fault in faults if " - " in fault.target} == {"cut", "refuse", "stall", "half-open"}
    assert {fault.target.rpartition(" - ")[2] for fault in faults if " - " in fault.target} == {
        *("redis", "database", "engine")
    }


def test_faults_begin_in_their_window_and_in_order() -> None:
    for seed in range(MANY):
        begins = [fault.at_seconds for fault in plan_of(seed).faults]
        assert begins == sorted(begins)
        assert 2 <= len(begins) <= 5
        assert all(0.0 <= at <= WINDOW_SECONDS for at in begins)


def test_what_a_database_does_not_have_does_not_befall_it() -> None:
    sqlite = [fault for seed in range(MANY) if plan_of(seed).database == "sqlite" for fault in plan_of(seed).faults]
    assert sqlite
    assert not [fault for fault in sqlite if "postgresql" in fault.target or fault.target.endswith("- database")]
