"""Plans: pure functions of their seeds, which together meet every fault."""

import os
import subprocess
import sys
from collections import Counter

from tests.chaos.plan import CUTS, ENGINE_SCRIPT, EVERYTHING, PARTS, WAYS, WINDOW_SECONDS, plan_of
from tests.support.night import CHECKOUT

MANY = 200


def test_a_seed_is_a_plan_in_any_process() -> None:
    asked = [sys.executable, "-m", "tests.chaos", "7", "--show"]
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    shown = subprocess.run(asked, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=True).stdout
    assert shown.strip() == str(plan_of(7))
    assert plan_of(7) != plan_of(8)


def test_two_hundred_plans_meet_every_fault_of_every_target_often() -> None:
    met = Counter(fault.name for seed in range(MANY) for fault in plan_of(seed).faults)
    often = {
        *(f"kill {target}" for target in (*PARTS, "postgresql", "engine", EVERYTHING)),
        *(f"restart valkey {how} its data" for how in ("with", "without")),  # which is to kill it
        *(f"pause {target}" for target in (*PARTS, "postgresql", "valkey", "engine")),
        *(f"clock step {target}" for target in (*PARTS, EVERYTHING)),
        *(f"disk full {target}" for target in ("postgresql", "sqlite", "valkey")),
        *(f"engine says {kind}" for kind in ENGINE_SCRIPT),
    }
    ways = {f"{kind} {way}" for way in WAYS for kind in CUTS}
    assert met.keys() == often | ways
    assert not {name: met[name] for name in often if met[name] < 5}
    assert not {name: met[name] for name in ways if met[name] < 3}


def test_a_way_is_each_connection_that_a_part_has() -> None:
    assert len(WAYS) == len(set(WAYS)) == 2 * 2 + 2 * 3 + 2  # schedulers ask no engine, the gateway no database
    assert {way.partition(" - ")[0] for way in WAYS} == set(PARTS)


def test_faults_begin_in_their_window_and_in_order() -> None:
    for seed in range(MANY):
        begins = [fault.at_seconds for fault in plan_of(seed).faults]
        assert begins == sorted(begins)
        assert 3 <= len(begins) <= 5
        assert all(0.0 <= at <= WINDOW_SECONDS for at in begins)


def test_what_a_database_does_not_have_does_not_befall_it() -> None:
    sqlite = [fault for seed in range(MANY) if plan_of(seed).database == "sqlite" for fault in plan_of(seed).faults]
    assert sqlite
    assert not [fault for fault in sqlite if "postgresql" in fault.target or fault.target.endswith("- database")]
