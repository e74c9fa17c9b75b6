"""The night's tickets under Airflow 3: submit, wait without holding a worker slot, fetch the labels.

Copy this file into the DAGs folder. The product runs beside Airflow, in an environment of its own: a scheduler and
workers that are alive (`tickets-batch up`, or the compose file), and its command within reach of Airflow's workers. In
the environment of these workers, and of Airflow's DAG processor, may be:

    TICKETS_BATCH_COMMAND   the command, "tickets-batch" unless told
    TICKETS_BATCH_FOLDER    the folder with tickets-batch.toml, the current one unless told
    TICKETS_BATCH_ZONE      the settings' `timezone`, "Europe/Berlin" unless told: the run's date is a day there
    TICKETS_BATCH_AT        when to begin, as a cron expression in that zone, "0 22 * * *" unless told
    TICKETS_BATCH_RESULTS   "sink" for the table of [sink], else a file, "results-{date}.csv" unless told

A run may be cleared, repeated and backfilled: the same date is the same batch. A run of a past date reads that day's
tickets; its deadline is the next one.
"""

import json
import os
import shlex
import subprocess
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pendulum
from airflow.sdk import CronTriggerTimetable, PokeReturnValue, dag, get_current_context, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException

COMMAND = shlex.split(os.environ.get("TICKETS_BATCH_COMMAND", "tickets-batch"))
FOLDER = os.environ.get("TICKETS_BATCH_FOLDER", ".")
ZONE = os.environ.get("TICKETS_BATCH_ZONE", "Europe/Berlin")
AT = os.environ.get("TICKETS_BATCH_AT", "0 22 * * *")
RESULTS = os.environ.get("TICKETS_BATCH_RESULTS", "results-{date}.csv")
POKE_SECONDS = float(os.environ.get("TICKETS_BATCH_POKE_SECONDS", "60"))
RETRY_SECONDS = float(os.environ.get("TICKETS_BATCH_RETRY_SECONDS", "300"))
LONGEST_NIGHT = timedelta(hours=24)

# What an exit code of the command means here. Another try mends no setting and moves no deadline, and a batch that a
# person has cancelled stays so: these fail at once.
SUCCESS, RETRY, FAIL = "success", "retry", "fail"
VERDICTS = {0: SUCCESS, 1: RETRY, 2: FAIL, 3: SUCCESS, 4: FAIL, 5: FAIL, 6: RETRY}


def code_of(batch: Mapping[str, Any]) -> int | None:
    """The exit code of a waiting submit for what `status --json` says of a batch; None while it goes on."""
    if batch["state"] in ("completed", "expired", "cancelled"):
        failed = 3 if batch["request_counts"]["failed"] else 0
        return {"completed": failed, "expired": 4, "cancelled": 5}[batch["state"]]
    # one with a deadline may heal until then, and ends there by itself
    return 6 if batch["blocked"] and not batch["deadline_at"] else None


def judge(code: int, said: str) -> None:
    """Raise what makes Airflow try again or give up; return where the code means success."""
    verdict = VERDICTS.get(code, RETRY)
    if verdict == FAIL:
        raise AirflowFailException(said)
    if verdict == RETRY:
        raise AirflowException(said)


def call(*arguments: str) -> str:
    """What the command prints. Its talk goes to the task's log; an exit code other than 0 is judged."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [*COMMAND, *arguments], cwd=FOLDER, env=environment, capture_output=True, text=True, check=False
    )
    print(done.stderr, end="")
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    judge(done.returncode, lines[-1])
    return done.stdout


def business_day() -> str:
    """The day of the run in the product's zone: of its logical date, or of its start where it was given none."""
    context = get_current_context()
    moment: datetime = context.get("logical_date") or context["dag_run"].run_after
    return moment.astimezone(ZoneInfo(ZONE)).date().isoformat()


@dag(
    dag_id="tickets_batch_night",
    schedule=CronTriggerTimetable(AT, timezone=ZONE),
    start_date=pendulum.datetime(2026, 1, 1, tz=ZONE),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(seconds=RETRY_SECONDS)},
    tags=["tickets-batch"],
    doc_md=__doc__,
)
def tickets_batch_night() -> None:
    """One run a night."""

    @task
    def submit() -> str:
        """Make the batch of the run's date, or add to it what is new; its id."""
        return call("submit", "--date", business_day()).strip()

    @task.sensor(mode="reschedule", poke_interval=POKE_SECONDS, timeout=LONGEST_NIGHT.total_seconds())
    def wait(batch_id: str) -> PokeReturnValue:
        """Look once, then leave the slot until the next look."""
        batch = json.loads(call("status", batch_id, "--json"))
        counts = batch["request_counts"]
        ended = sum(counts[state] for state in ("succeeded", "failed", "expired", "cancelled"))
        print(f"{batch_id} is {batch['state']}: {ended:,} of {counts['total']:,} tickets")
        code = code_of(batch)
        if code == 6:
            judge(code, f"{batch_id} is blocked: {batch['blocked']}")
        return PokeReturnValue(is_done=code is not None, xcom_value=code)

    @task
    def fetch(batch_id: str, code: int) -> None:
        """Write the labels that there are, then say how the night ended."""
        if RESULTS == "sink":
            call("results", batch_id, "--to-sink")
        else:
            call("results", batch_id, "-o", RESULTS.format(date=business_day()))
        judge(code, f"{batch_id} ended with exit code {code}: tickets-batch status {batch_id} says more")

    batch_id = submit()
    fetch(batch_id, wait(batch_id))


tickets_batch_night()
