"""The application that a monitor is given: on the broker in use, or one line that says why there is none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.night import CHECKOUT
from workers.app import KEY_PREFIX

ASK = (
    "from workers.monitor import app; "
    "print(app.conf.broker_url, app.conf.broker_transport_options['global_keyprefix'], app.conf.result_backend)"
)


def import_it(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TICKETS_BATCH")}
    return subprocess.run(
        [sys.executable, "-c", ASK],
        cwd=folder,
        env={**ours, "PYTHONPATH": str(CHECKOUT), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_it_is_on_the_redis_of_the_settings(tmp_path: Path) -> None:
    done = import_it(tmp_path, TICKETS_BATCH__REDIS_URL="redis://10.0.0.1:6379/0")
    assert done.stdout.split() == ["redis://10.0.0.1:6379/0", KEY_PREFIX, "None"], done.stderr


def test_or_on_the_server_that_runs_under_home(tmp_path: Path) -> None:
    run = tmp_path / ".tickets-batch" / "run"
    run.mkdir(parents=True)
    (run / "redis-url").write_text("redis://:word@127.0.0.1:7000/0\n", encoding="utf-8")
    assert import_it(tmp_path).stdout.split()[0] == "redis://:word@127.0.0.1:7000/0"


@pytest.mark.parametrize(
    ("settings", "why"),
    [("", "start tickets-batch up, or set redis_url"), ("redis_url = 3\n", "redis_url"), ("[", "is not valid TOML")],
)
def test_without_either_one_line_says_what_to_do(tmp_path: Path, settings: str, why: str) -> None:
    (tmp_path / "tickets-batch.toml").write_text(settings, encoding="utf-8")
    done = import_it(tmp_path)
    assert done.returncode == 1
    assert why in done.stderr
    assert len(done.stderr.splitlines()) == 1
