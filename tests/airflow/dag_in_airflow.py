"""The DAG in a real Airflow 3, beside a product that is at work: `make airflow` runs this.

Airflow lives in an environment of its own, whose programs are in AIRFLOW_BIN. It has one slot for tasks: whoever waits
in it would be seen to hold up others.
"""

import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from jobs.states import BatchState
from jobs.store import batches
from jobs.store.batches import Batch
from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.process import EngineThread
from tests.support.command import Command
from tests.support.night import CHECKOUT, Night
from tests.support.wait import wait_until
from tickets_batch.cli.ending import exit_code
from tickets_batch.local.ports import free_port

DAG = "tickets_batch_night"
DAG_FILE = CHECKOUT / "deploy" / "airflow" / f"{DAG}.py"
BIN = Path(os.environ["AIRFLOW_BIN"])
ZONE = ZoneInfo("Europe/Berlin")
ONCE_A_YEAR = "0 22 1 1 *"  # the scheduler begins the latest of these nights by itself, and no other meanwhile
NOW = datetime.now(ZONE)
YEAR = NOW.year if (NOW.month, NOW.day, NOW.hour) > (1, 1, 22) else NOW.year - 1
DATE, OTHER_DATE = f"{YEAR}-01-01", f"{YEAR}-01-05"
TICKETS = 40
OTHER = """
import pendulum
from airflow.sdk import dag, task


@dag(dag_id="other", schedule=None, start_date=pendulum.datetime(2026, 1, 1))
def other():
    @task
    def hello():
        print("hello")

    hello()


other()
"""
JUDGE = """
import json, sys
sys.path.insert(0, sys.argv[1])
import tickets_batch_night as night
from airflow.sdk.exceptions import AirflowFailException

def verdict(code):
    try:
        night.judge(code, "said")
    except AirflowFailException:
        return "fail"
    except Exception:
        return "retry"
    return "success"

print(json.dumps({
    "codes": [night.code_of(batch) for batch in json.load(sys.stdin)],
    "verdicts": {code: verdict(code) for code in range(8)},
}))
"""


class Airflow:
    """One Airflow with its own home; `AIRFLOW_HOME/airflow.db` tells what became of runs and tasks."""

    def __init__(self, folder: Path, night: Night) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)
        self._started: list[Command] = []
        dags = folder / "dags"
        dags.mkdir(parents=True)
        shutil.copy(DAG_FILE, dags)
        (dags / "other.py").write_text(OTHER, encoding="utf-8")
        self._port = free_port()
        self._environment = {
            **{name: value for name, value in night.environment.items() if name != "PYTHONPATH"},
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "AIRFLOW_HOME": str(folder),
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__PARALLELISM": "1",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{self._port}/execution/",
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",  # a busy machine is no fault
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self._port),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API_AUTH__JWT_SECRET": "only-for-this-test-and-long-enough-for-a-key-of-its-kind-0123456789",
            "TICKETS_BATCH_COMMAND": f"{sys.executable} -m tickets_batch",
            "TICKETS_BATCH_FOLDER": str(night.folder),
            "TICKETS_BATCH_AT": ONCE_A_YEAR,
            "TICKETS_BATCH_POKE_SECONDS": "2",
            "TICKETS_BATCH_RETRY_SECONDS": "10",
        }

    def start(self) -> None:
        self.run("db", "migrate")
        self._started.append(self._command("api-server"))
        self._started.append(self._command("dag-processor"))
        wait_until(self._answers, "Airflow's server to answer", 120)  # tasks report to it from their first moment
        self._started.append(self._command("scheduler"))

    def run(self, *arguments: str) -> str:
        """What a command of Airflow's prints; it must succeed."""
        command = self._command(*arguments)
        code = command.wait(120)
        assert code == 0, f"{command}\n{command.err[-4000:]}"
        return command.out

    def trigger(self, run_id: str, date: str, dag: str = DAG) -> None:
        """Begin a run for ten past midnight in Berlin, which is still the day before in London."""
        self.run("dags", "trigger", dag, "--run-id", run_id, "--logical-date", f"{date}T00:10:00+01:00")

    def runs(self) -> dict[str, str]:
        """The states of all runs of the DAG."""
        return dict(self.rows("SELECT run_id, state FROM dag_run WHERE dag_id = ?", DAG))

    def state(self, run_id: str) -> str | None:
        rows = self.rows("SELECT state FROM dag_run WHERE run_id = ?", run_id)
        return rows[0][0] if rows else None

    def tasks(self, run_id: str) -> dict[str, str | None]:
        """The states of a run's tasks by name."""
        return dict(self.rows("SELECT task_id, state FROM task_instance WHERE run_id = ?", run_id))

    def tries(self, run_id: str) -> dict[str, int]:
        return dict(self.rows("SELECT task_id, try_number FROM task_instance WHERE run_id = ?", run_id))

    def rows(self, query: str, *values: str) -> list[Any]:
        with contextlib.closing(sqlite3.connect(self._folder / "airflow.db", timeout=30)) as connection:
            return list(connection.execute(query, values))

    def wait_for(self, run_id: str, *states: str) -> None:
        wait_until(lambda: self.state(run_id) in states, f"{run_id} to be {' or '.join(states)}", 240)

    def close(self) -> None:
        for command in self._started:
            if command.code is None:
                command.send(signal.SIGTERM)
        for command in self._started:
            try:
                command.wait(30)
            finally:
                command.close()

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
            return True
        return False

    def _command(self, *arguments: str) -> Command:
        output = self._folder / f"airflow-{next(self._numbers)}-{arguments[0]}"
        return Command(
            [str(BIN / "airflow"), *arguments], folder=self._folder, environment=self._environment, output=output
        )


@pytest.fixture
def engine() -> Iterator[EngineThread]:
    with EngineThread(EngineProfile(slots=16, step_base_seconds=0.02)) as running:
        yield running


@pytest.fixture
def night(tmp_path: Path, engine: EngineThread) -> Iterator[Night]:
    folder = tmp_path / "night"
    folder.mkdir()
    made = Night(folder)
    made.environment["PYTHONPATH"] = str(CHECKOUT)
    made.configure(engine.base_url)
    write_tickets(folder, DATE, TICKETS)
    yield made
    made.close()


@pytest.fixture
def airflow(tmp_path: Path, night: Night) -> Iterator[Airflow]:
    made = Airflow(tmp_path / "airflow", night)
    yield made
    made.close()


def test_end_to_end(airflow: Airflow, night: Night, engine: EngineThread) -> None:
    airflow.start()
    wait_until(lambda: airflow.rows("SELECT 1 FROM dag WHERE dag_id = ?", DAG), "the DAG to be loaded", 120)
    assert airflow.rows("SELECT filename, stacktrace FROM import_error") == []

    # the night of the schedule. Nothing runs yet: submit fails, and succeeds when the product is at work
    wait_until(lambda: airflow.runs(), "a run", 120)
    (first,) = airflow.runs()
    wait_until(lambda: airflow.tries(first).get("submit", 0) >= 2, "a second try", 120)
    engine.freeze()
    night.start("up")

    # a waiting run holds no slot: there is only one, and another DAG gets it
    wait_until(lambda: airflow.tasks(first).get("wait") == "up_for_reschedule", "the wait to rest", 120)
    airflow.trigger("beside", DATE, "other")
    airflow.wait_for("beside", "success", "failed")
    assert airflow.state("beside") == "success"
    assert airflow.state(first) == "running"
    engine.thaw()
    airflow.wait_for(first, "success", "failed")
    assert airflow.tasks(first) == {"submit": "success", "wait": "success", "fetch": "success"}
    labels = (night.folder / f"results-{DATE}.csv").read_text(encoding="utf-8")
    assert labels.count(",succeeded,") == TICKETS
    assert [str(batch.date) for batch in all_batches(night)] == [DATE]

    # the same night again, by a backfill and by hand: the same batch, and nothing is asked of the model
    asked = night.json("status", "latest")["tokens"]
    (night.folder / f"results-{DATE}.csv").unlink()
    range_of_dates = ("--from-date", DATE, "--to-date", f"{YEAR}-01-02")
    airflow.run("backfill", "create", "--dag-id", DAG, *range_of_dates, "--reprocess-behavior", "completed")
    wait_until(lambda: (night.folder / f"results-{DATE}.csv").exists(), "the backfill to write the labels again", 240)
    wait_until(lambda: not {"queued", "running"} & set(airflow.runs().values()), "the backfill to end", 240)
    airflow.trigger("by-hand", DATE)
    airflow.wait_for("by-hand", "success", "failed")
    assert set(airflow.runs().values()) == {"success"}
    assert [str(batch.date) for batch in all_batches(night)] == [DATE]
    assert night.json("status", "latest")["tokens"] == asked

    # one that a person cancels is not tried again
    write_tickets(night.folder, OTHER_DATE, 1)
    engine.freeze()
    airflow.trigger("cancelled", OTHER_DATE)
    wait_until(lambda: airflow.tasks("cancelled").get("wait") == "up_for_reschedule", "the wait to rest", 120)
    night.run("cancel", "latest", code=0)
    airflow.wait_for("cancelled", "success", "failed")
    assert airflow.tasks("cancelled")["fetch"] == "failed"
    assert airflow.tries("cancelled")["fetch"] == 1


def write_tickets(folder: Path, date: str, count: int) -> None:
    rows = [f"{date}-{number},{date} 12:00,,Ticket {number} of {date}: where is it?" for number in range(count)]
    (folder / "tickets.csv").write_text("\n".join(["id,created_at,subject,body", *rows]), encoding="utf-8")


def all_batches(night: Night) -> Sequence[Batch]:
    return batches.newest_first(night.database())


def test_states_mean_what_the_commands_exit_codes_mean(night: Night) -> None:
    night.run("submit", "--date", DATE, "--json", code=1)
    (batch,) = all_batches(night)
    shown = night.json("status", batch.id)
    cases: list[tuple[dict[str, Any], int | None]] = []
    for state in BatchState:
        for failed, blocked, deadline in itertools.product((0, 1), (None, "unauthorized"), (None, "2026-12-01T06:00Z")):
            counts = {**shown["request_counts"], "failed": failed}
            said = {**shown, "state": state, "request_counts": counts, "blocked": blocked, "deadline_at": deadline}
            if state.is_final and blocked:
                continue  # an end takes the reason with it
            goes_on = not state.is_final and (blocked is None or deadline is not None)
            code = exit_code(replace(batch, state=state, failed=failed, blocked=blocked))
            cases.append((said, None if goes_on else code))
    done = subprocess.run(
        [str(BIN / "python"), "-c", JUDGE, str(DAG_FILE.parent)],
        input=json.dumps([said for said, _ in cases]),
        env={**night.environment, "AIRFLOW_HOME": str(night.folder / "airflow"), "TICKETS_BATCH_AT": ONCE_A_YEAR},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["codes"] == [code for _, code in cases]
    expected = ["success", "retry", "fail", "success", "fail", "fail", "retry", "retry"]
    assert found["verdicts"] == {str(code): verdict for code, verdict in enumerate(expected)}
