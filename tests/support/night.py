"""The product as a person runs it: a folder with settings and tickets, and the command as a child process."""

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.wait import wait_until

CHECKOUT = Path(__file__).resolve().parents[2]
LABELS = ("account", "billing", "shipping", "technical")

SETTINGS = """
timezone = "Europe/Berlin"
home = "{home}"
[source]
path = "tickets.csv"
columns = {{ id = "id", subject = "subject", body = "body" }}
[classification]
instructions = "You sort a shop's support tickets."
max_output_tokens = 24
[classification.labels]
{labels}
[[pool]]
name = "gpu"
base_url = "{base_url}"
model = "test-model"
engine = "vllm"
capacity = {{ slots = {slots}, tokens = {tokens} }}
protected = {{ interactive = {{ slots = {chat}, tokens = {chat_tokens} }}, batch = {{ slots = 1, tokens = 2000 }} }}
request_timeout_seconds = 30
[worker]
processes = {processes}
lease_seconds = 4
stop_grace_seconds = 2
"""


class Night:
    """One folder, one `home`, one engine; every command it starts is ended with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("TICKETS_BATCH", "OPENAI"))
        }
        self._running: list[subprocess.Popen[str]] = []

    def configure(
        self,
        base_url: str,
        *,
        slots: int = 20,
        chat: int = 4,
        processes: int = 2,
        labels: Sequence[str] = LABELS,
        database_url: str | None = None,
        redis_url: str | None = None,
        more: str = "",
    ) -> None:
        """Write `tickets-batch.toml`; `more` is TOML put in front of everything."""
        text = SETTINGS.format(
            home=self.home,
            base_url=base_url,
            slots=slots,
            tokens=slots * 3000,
            chat=chat,
            chat_tokens=chat * 3000,
            processes=processes,
            labels="\n".join(f"{json.dumps(label)} = {json.dumps('about ' + label)}" for label in labels),
        )
        (self.folder / "tickets-batch.toml").write_text(more + text, encoding="utf-8")
        for key, value in (("DATABASE_URL", database_url), ("REDIS_URL", redis_url)):
            if value is not None:
                self.environment[f"TICKETS_BATCH__{key}"] = value

    def tickets(self, bodies: Sequence[str], name: str = "tickets.csv", first: int = 1) -> dict[str, str]:
        """Write one ticket per body; returns the bodies by id."""
        rows = {f"T{number:06d}": body for number, body in enumerate(bodies, first)}
        with (self.folder / name).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "subject", "body"])
            writer.writerows((ticket_id, "", body) for ticket_id, body in rows.items())
        return rows

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Begin a command; its output can be read from the returned process."""
        process = subprocess.Popen(
            [sys.executable, "-m", "tickets_batch", *arguments],
            cwd=self.folder,
            env={**self.environment, "PYTHONPATH": str(CHECKOUT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._running.append(process)
        return process

    def run(self, *arguments: str, timeout_seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """A command from its beginning to its end."""
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=20)
            raise AssertionError(f"{arguments} took over {timeout_seconds:g} s\n{err}\n{self.logs()}") from None
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def json(self, *arguments: str, code: int = 0, timeout_seconds: float = 120) -> Any:
        """What a command prints with `--json`; its exit code must be `code`."""
        done = self.run(*arguments, "--json", timeout_seconds=timeout_seconds)
        assert done.returncode == code, f"{arguments} exited {done.returncode}\n{done.stderr}\n{self.logs()}"
        return json.loads(done.stdout)

    def submit_and_wait(self, code: int = 0, timeout_seconds: float = 120) -> Any:
        """The whole night in one command; the final object of the batch."""
        return self.json("submit", "--date", "today", "--all", "--wait", code=code, timeout_seconds=timeout_seconds)

    def results(self, batch: str = "latest") -> dict[str, dict[str, Any]]:
        """The result rows by ticket id."""
        done = self.run("results", batch, "--format", "jsonl")
        assert done.returncode == 0, done.stderr
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        found = {row["custom_id"]: row for row in rows}
        assert len(found) == len(rows), "a ticket has two result rows"
        return found

    def logs(self) -> str:
        """The last lines of every child's log, for a failure's message."""
        found = sorted((self.home / "logs").glob("*.log")) if (self.home / "logs").is_dir() else []
        return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')[-2000:]}" for path in found)

    def children(self, process: subprocess.Popen[str]) -> list[psutil.Process]:
        """Every process that a command has started."""
        return psutil.Process(process.pid).children(recursive=True)

    def child(self, process: subprocess.Popen[str], word: str) -> psutil.Process:
        """The first child whose command line holds this word, as soon as there is one."""

        def find() -> psutil.Process | None:
            for child in self.children(process):
                try:
                    if any(word in part for part in child.cmdline()):
                        return child
                except psutil.NoSuchProcess:
                    continue
            return None

        found = wait_until(find, f"a child process named {word}", timeout_seconds=30)
        assert found is not None
        return found

    def close(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    made = Night(tmp_path)
    yield made
    made.close()
