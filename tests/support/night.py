"""The product as a person runs it: a folder with settings and tickets, and the command as a child process."""

import contextlib
import csv
import itertools
import json
import os
import signal
import sys
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from jobs.prompt import fenced
from jobs.store import batches
from jobs.store.batches import Batch
from jobs.store.database import Database
from tests.engine.answer import expected_label, ticket_hash, ticket_of
from tests.support.command import Command
from tests.support.wait import wait_until

CHECKOUT = Path(__file__).resolve().parents[2]
PYTHON = (sys.executable, "-m", "tickets_batch")
LABELS = ("account", "billing", "shipping", "technical")
COMMAND_NAMES = ("tickets_batch", "tickets-batch")
MARK = "NIGHT_UNDER_TEST"  # in the environment of every process of a night, whoever started it

SETTINGS = """
timezone = "Europe/Berlin"
home = {home}
[source]
path = "tickets.csv"
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
protected = {{ interactive = {{ slots = {chat}, tokens = {chat_tokens} }}, batch = {batch} }}
request_timeout_seconds = 30
{signal}
[worker]
processes = {processes}
lease_seconds = {lease_seconds}
stop_grace_seconds = 2
"""


class Night:
    """One folder with one `home`. Every process that belongs to it is known by a mark, and ended with it."""

    def __init__(self, folder: Path, command: Sequence[str] = PYTHON) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.labels: Sequence[str] = LABELS
        self.database_url = f"sqlite:///{self.home}/tickets-batch.db"
        self._command = tuple(command)
        self._mark = uuid.uuid4().hex
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TICKETS_BATCH", "OPENAI", "COV_", "PYTHON"))
        }
        self.environment[MARK] = self._mark
        self.environment["TICKETS_BATCH__SCHEDULER__HOLDOUT"] = "0"  # a test may last no longer than a held-out minute
        if self._command == PYTHON:
            self.environment["PYTHONPATH"] = str(CHECKOUT)
        self._numbers = itertools.count(1)
        self._started: list[Command] = []
        self._opened: dict[str, Database] = {}

    # --- what is configured

    def configure(
        self,
        base_url: str,
        *,
        slots: int = 16,
        chat: int = 0,
        processes: int = 2,
        lease_seconds: float = 4,
        labels: Sequence[str] = LABELS,
        database_url: str | None = None,
        redis_url: str | None = None,
        more: str = "",
    ) -> None:
        """Write `tickets-batch.toml`; `more` is TOML put in front of everything.

        Without a share for `chat` the pool is batch's own; with one, the engine's metrics tell that no chat is there.
        """
        batch = "{ slots = 1, tokens = 2000 }" if chat else f"{{ slots = {slots}, tokens = {slots * 8000} }}"
        self.labels = labels
        text = SETTINGS.format(
            home=json.dumps(str(self.home)),
            base_url=base_url,
            slots=slots,
            tokens=slots * 8000,
            chat=chat,
            chat_tokens=chat * 8000,
            batch=batch,
            signal='[[pool.signal]]\ntype = "engine"' if chat else "",
            processes=processes,
            lease_seconds=lease_seconds,
            labels="\n".join(f"{json.dumps(label)} = {json.dumps('about ' + label)}" for label in labels),
        )
        (self.folder / "tickets-batch.toml").write_text(more + text, encoding="utf-8")
        if database_url is not None:
            self.database_url = self.environment["TICKETS_BATCH__DATABASE_URL"] = database_url
        if redis_url is not None:
            self.environment["TICKETS_BATCH__REDIS_URL"] = redis_url

    def tickets(self, bodies: Iterable[str], name: str = "tickets.csv", first: int = 1) -> dict[str, str]:
        """Write one ticket per body; returns the bodies by id."""
        rows = {f"T{number:06d}": body for number, body in enumerate(bodies, first)}
        with (self.folder / name).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "subject", "body"])
            writer.writerows((ticket_id, "", body) for ticket_id, body in rows.items())
        return rows

    # --- commands

    def start(
        self,
        *arguments: str,
        prefix: Sequence[str] = (),
        program: Sequence[str] | None = None,
        stdout: Path | None = None,
    ) -> Command:
        """Begin a command; `prefix` is a program that runs it, `program` one to run instead of it."""
        command = Command(
            [*prefix, *(program or self._command), *arguments],
            folder=self.folder,
            environment=self.environment,
            output=self.folder / f"command-{next(self._numbers)}",
            stdout=stdout,
        )
        self._started.append(command)
        return command

    def run(
        self,
        *arguments: str,
        code: int | None = None,
        timeout_seconds: float = 60,
        prefix: Sequence[str] = (),
        program: Sequence[str] | None = None,
        stdout: Path | None = None,
    ) -> Command:
        """A command from its beginning to its end; its exit code must be `code` where one is given."""
        command = self.start(*arguments, prefix=prefix, program=program, stdout=stdout)
        ended = command.wait(timeout_seconds)
        if code is not None and ended != code:
            raise AssertionError(f"{command} exited {ended}, not {code}\n{command.err}\n{self.logs()}")
        return command

    def json(self, *arguments: str, code: int = 0, timeout_seconds: float = 60) -> Any:
        """What a command prints with `--json`; its exit code must be `code`."""
        return json.loads(self.run(*arguments, "--json", code=code, timeout_seconds=timeout_seconds).out)

    def submit_and_wait(self, *more: str, code: int = 0, timeout_seconds: float = 120) -> Any:
        """The whole night in one command; the final object of the batch."""
        return self.json("submit", "--all", "--wait", *more, code=code, timeout_seconds=timeout_seconds)

    def start_submit_and_wait(self, *more: str) -> Command:
        """The same, while it runs."""
        return self.start("submit", "--all", "--wait", *more, "--json")

    def batch_id(self, ended: Command) -> str:
        """The batch that a `submit --json` was about."""
        return str(json.loads(ended.out)["batch_id"])

    def results(self, batch: str = "latest") -> dict[str, dict[str, Any]]:
        """The result rows by ticket id."""
        lines = self.run("results", batch, "--format", "jsonl", code=0).out.splitlines()
        rows = [json.loads(line) for line in lines]
        found = {row["custom_id"]: row for row in rows}
        assert len(found) == len(rows), "a ticket has two result rows"
        return found

    # --- what is to come out

    def expected(self, tickets: dict[str, str]) -> dict[str, str]:
        """The engine's label for each ticket, worked out from the text that the prompt fences."""
        return {custom_id: expected_label(as_sent(body), self.labels) for custom_id, body in tickets.items()}

    # --- what goes on

    def batch(self) -> Batch | None:
        """The latest batch as the database has it now, None while there is none."""
        if self.database_url.startswith("sqlite") and not Path(self.database_url.removeprefix("sqlite:///")).exists():
            return None
        db = self.database()
        with contextlib.suppress(Exception):  # the tables may just be in the making
            return next(iter(batches.newest_first(db, 1)), None)
        return None

    def database(self) -> Database:
        """The night's database, for what only a test wants to know."""
        if self.database_url not in self._opened:
            self._opened[self.database_url] = Database.open(self.database_url)
        return self._opened[self.database_url]

    def wait_until_done(self, count: int, timeout_seconds: float = 60) -> None:
        """Wait until so many tickets of the latest batch have succeeded."""

        def enough() -> bool:
            batch = self.batch()
            return batch is not None and batch.succeeded >= count

        wait_until(enough, f"{count} tickets to be done", timeout_seconds)

    def processes(self, verb: str | None = None) -> list[psutil.Process]:
        """The living processes of this night, of one verb (or `valkey`) or of all."""
        found = [process for process in psutil.process_iter() if self._is_ours(process)]
        return [process for process in found if verb is None or verb_of(process) == verb]

    def one(self, verb: str) -> psutil.Process:
        """One living process of that verb, as soon as there is one."""
        return wait_until(lambda: self.processes(verb), f"a {verb} process", timeout_seconds=30)[0]

    def kill(self, verb: str) -> int:
        """SIGKILL one process of that verb; its number."""
        victim = self.one(verb)
        victim.kill()
        wait_until(lambda: not self._is_ours(victim), f"the {verb} to be gone")
        return int(victim.pid)

    def redis_url(self) -> str | None:
        """The address of the embedded Valkey, None before there is one."""
        file = self.home / "run" / "redis-url"
        return file.read_text().strip() if file.exists() else None

    def logs(self) -> str:
        """The last lines of every child's log, for a failure's message."""
        found = sorted((self.home / "logs").glob("*.log")) if (self.home / "logs").is_dir() else []
        return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')[-2000:]}" for path in found)

    def close(self) -> None:
        """End every process, in good order where it knows one."""
        for database in self._opened.values():
            database.dispose()
        for command in reversed(self._started):
            if command.code is None:
                command.send(signal.SIGTERM)
        for command in reversed(self._started):
            with contextlib.suppress(AssertionError):
                command.wait(10)
            command.close()
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            # Valkey writes its title over its environment, but lives under home.
            is_here = Path(process.cwd()).is_relative_to(self.folder)
            return is_alive(process) and (is_here or process.environ().get(MARK) == self._mark)
        except (psutil.Error, OSError):
            return False


def is_alive(process: psutil.Process) -> bool:
    """True while a process runs: not for one that has ended and is not yet collected."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def as_sent(body: str) -> str:
    """A ticket's text as the engine finds it in the prompt."""
    return ticket_of(fenced("", body))


def hash_as_sent(body: str) -> str:
    """What stands for a ticket's text in the engine's log."""
    return ticket_hash(as_sent(body))


def verb_of(process: psutil.Process) -> str:
    """Which part of the product a process is: the verb of its command line, or `valkey`."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return ""
    if any("valkey-server" in word for word in words):
        return "valkey"
    return next((after for word, after in itertools.pairwise(words) if word.endswith(COMMAND_NAMES)), "")
