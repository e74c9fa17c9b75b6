"""Everything that runs in chaos: the product's parts, what they need, and a way between any two of them."""

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from subprocess import SubprocessError
from types import TracebackType
from typing import Self

import psutil  # type: ignore[import-untyped]
from sqlalchemy import delete, text

from jobs.spec import ClassificationSpec
from jobs.store import schema
from jobs.store.database import Database
from jobs.store.errors import StoreConflict, StoreUnavailable
from jobs.tables import attempts, batches, curves, events, forecasts, jobs, load_samples, rejections, results, tickets
from scheduler.pools import found_ledgers
from scheduler.simulation.engine.profile import EngineProfile
from scheduler.snapshot import Snapshot
from tests.chaos.disk import SmallDisk
from tests.chaos.links import Links
from tests.chaos.part import AGAIN_SECONDS, Part, Tree
from tests.chaos.plan import EVERYTHING, PARTS, SERVERS, DatabaseKind
from tests.chaos.ports import Ports
from tests.engine.log import LogRow, decode
from tests.engine.process import EngineProcess
from tests.support.databases import PostgreSQL
from tests.support.gateways import LISTENS, snapshot
from tests.support.night import CHECKOUT
from tests.support.shift import LABELS
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until
from tickets_batch.settings import Settings, to_environment

SLOTS, CHAT_SLOTS, FLOOR_SLOTS = 14, 4, 2
TOKENS_PER_SLOT = 2_000
ATTEMPTS = 5
JOB_LEASE_SECONDS = 6.0  # some faults last longer; no process of a busy machine waits for its turn so long
REQUEST_SECONDS = 4.0
START_SECONDS = 120.0
DISK_MEGABYTES = {"postgresql": 256, "sqlite": 24}
VALKEY_MEGABYTES = 32
# As who wants to keep data across a restart runs it: the product's own server keeps none, and has no disk to fill.
VALKEY_OPTIONS = ("--appendonly", "yes", "--auto-aof-rewrite-min-size", "4mb")
VALKEY_FOLDER = "appendonlydir"
KILLED = "killed"  # the outcome of a call in the engine when it was

SPEC = ClassificationSpec(labels={label: f"about {label}" for label in LABELS}, max_output_tokens=40)
# A ticket takes about half a second beside the others: there is always something to interrupt.
ENGINE = EngineProfile(slots=SLOTS, step_base_seconds=0.02)
ENGINE_OPTIONS = ("--answer-tokens", "20", "--stream-interval", "4")

_EMPTIED = (results, attempts, tickets, jobs, rejections, forecasts, curves, load_samples, events, batches)


class World:
    """A context manager that starts everything once; it stays for plan after plan on one kind of database.

    `checkout` is where the product is taken from; worlds of different lanes may be at one time.
    """

    def __init__(self, kind: DatabaseKind, checkout: Path = CHECKOUT, lane: int = 0) -> None:
        self.kind = kind
        self._checkout = checkout
        self._stack = ExitStack()
        self.folder = Path(tempfile.mkdtemp(prefix="chaos-"))  # a short path: it holds a socket
        self.parts: dict[str, Part] = {}
        ports = Ports(lane)
        self.links = Links(ports.take)
        self._engine_log = self.folder / "engine.jsonl"  # outlives the engine
        self._lost_calls: list[LogRow] = []  # of engines that were killed
        self.engine = EngineProcess(ENGINE, *ENGINE_OPTIONS, port=ports.take(), log_path=self._engine_log)
        self._valkey_port = ports.take()
        self.postgresql: PostgreSQL | None = None
        self._is_away: set[str] = set()  # parts and servers that a fault keeps away
        self._due: dict[str, float] = {}  # when a part that has ended by itself is started again
        self.ended: list[str] = []  # what ended by itself, in its own words
        self._gateway_port = ports.take()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self.disk = SmallDisk(self.folder / "disk", DISK_MEGABYTES[self.kind])
            stack.callback(self.disk.remove)
            self.valkey_disk = SmallDisk(self.folder / "valkey", VALKEY_MEGABYTES)
            stack.callback(self.valkey_disk.remove)
            self._begin(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _begin(self, stack: ExitStack) -> None:
        self.valkey = ValkeyServer(self.valkey_disk.folder, *VALKEY_OPTIONS, port=self._valkey_port)
        self.valkey.start()
        stack.callback(self.valkey.kill)
        stack.enter_context(self.engine)
        stack.enter_context(self.links)
        self._begin_database(stack)
        schema.upgrade(self.database_url)
        self.db = Database.open(self.database_url)
        stack.callback(self.db.dispose)
        # Each part has ways of its own; the driver looks past them.
        self.settings = self._settings("", self.valkey.url, self.engine.base_url, self.database_url)
        for name in PARTS:
            self.parts[name] = self._part(name)
        stack.callback(self._stop_parts)
        self.found()
        for part in self.parts.values():
            part.start()
        try:
            wait_until(self.is_at_work, "everything to be at work", START_SECONDS, 0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}; {'; '.join(self.ended[-3:])}") from None

    def _begin_database(self, stack: ExitStack) -> None:
        if self.kind == "sqlite":
            self.database_url = f"sqlite:///{self.disk.folder}/chaos.db"
            return
        self.postgresql = PostgreSQL(self.disk.folder / "data")
        stack.callback(self.postgresql.end)
        for setting in ("max_wal_size = '64MB'", "min_wal_size = '32MB'", "autovacuum = off"):
            self.postgresql.run(f"ALTER SYSTEM SET {setting}")
        self.postgresql.run("SELECT pg_reload_conf()")
        self.postgresql.run("CREATE DATABASE chaos")
        self.database_url = self.postgresql.url("chaos")

    def _part(self, name: str) -> Part:
        redis_port = self.links.to_port(f"{name} - redis", self.valkey.port)
        engine_port = self.links.to_port(f"{name} - engine", self.engine.port)
        database_url = self.database_url
        if self.postgresql is not None:
            port = self.links.to_socket(f"{name} - database", self.postgresql.socket_file)
            database_url = f"postgresql+psycopg://postgres@127.0.0.1:{port}/chaos"
        settings = self._settings(
            name, f"redis://127.0.0.1:{redis_port}/0", f"http://127.0.0.1:{engine_port}/v1", database_url
        )
        ours = ("TICKETS_BATCH", "OPENAI", "COV_", "PYTHON")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
        verb = name.partition("-")[0]
        arguments = [verb, "--processes", "1"] if verb == "worker" else [verb]
        return Part(name, arguments, environment | to_environment(settings), self.folder, self._checkout)

    def _settings(self, name: str, redis_url: str, base_url: str, database_url: str) -> Settings:
        def share(slots: int) -> dict[str, int]:
            return {"slots": slots, "tokens": slots * TOKENS_PER_SLOT}

        return Settings(
            home=self.folder / "home" / name,
            redis_url=redis_url,
            database_url=database_url,
            source={"path": "tickets.csv"},
            classification=SPEC.model_dump(mode="json"),
            pool=[
                {
                    "name": "gpu",
                    "base_url": base_url,
                    "model": "test-model",
                    "engine": "vllm",
                    "capacity": share(SLOTS),
                    "protected": {"interactive": share(CHAT_SLOTS), "batch": share(FLOOR_SLOTS)},
                    "request_timeout_seconds": REQUEST_SECONDS,
                    "signal": [{"type": "ledger"}],
                }
            ],
            gateway={"listen": f"127.0.0.1:{self._gateway_port}"},
            worker={
                "processes": 1,
                "at_once": 2 * SLOTS,
                "attempts": ATTEMPTS,
                "lease_seconds": JOB_LEASE_SECONDS,
                "stop_grace_seconds": 1,
            },
            scheduler={"holdout": 0},
        )

    # --- what a run looks at

    @property
    def gateway(self) -> str:
        """The address of the chat's door, without /v1."""
        return f"http://127.0.0.1:{self._gateway_port}"

    def is_at_work(self) -> bool:
        """Whether every part is there, and has said so. Raises AssertionError where one has ended at the start."""
        self.tend()
        return all(map(self.is_up, PARTS))

    @property
    def engine_listens(self) -> bool:
        """Whether the engine is there and was not stopped: else it answers nobody."""
        return self.engine.is_running and psutil.Process(self.engine.pid).status() != psutil.STATUS_STOPPED

    def calls(self) -> list[LogRow]:
        """What the engine was asked since the last `empty`, whichever process it was."""
        return [*self._lost_calls, *self.engine.log()]

    def is_up(self, name: str) -> bool:
        """Whether one part is there to its own knowledge, or a server at all."""
        if name in SERVERS:
            servers = {"valkey": self.valkey, "postgresql": self.postgresql, "engine": self.engine}
            server = servers[name]
            return server is None or server.is_running
        part = self.parts[name]
        sign = LISTENS if name == "gateway" else "is at work"
        return part.is_alive and any(sign in line for line in part.talk)

    def snapshot(self) -> Snapshot:
        """Who holds what, by the ledger."""
        return snapshot(self.settings)

    # --- what a run does

    def found(self) -> None:
        """Begin a ledger that has never given a permit."""
        asyncio.run(found_ledgers(self.valkey.url, self.settings.pool))

    def empty(self) -> None:
        """Forget every batch, and what the engine was asked."""
        with self.db.begin() as connection:
            if self.kind == "postgresql":
                connection.execute(text("TRUNCATE " + ", ".join(table.name for table in _EMPTIED) + " CASCADE"))
            else:
                for table in _EMPTIED:
                    connection.execute(delete(table))
        self.engine.reset()
        os.truncate(self._engine_log, 0)
        self._lost_calls.clear()
        self.ended.clear()
        for part in self.parts.values():
            part.news()

    def tend(self) -> None:
        """Start again what has ended by itself, as a supervisor does."""
        now = time.monotonic()
        for name, part in self.parts.items():
            if name in self._is_away or part.is_alive:
                continue
            if name not in self._due:
                self._due[name] = now + AGAIN_SECONDS
                self.ended.append(f"{name} ended: {part.talk[-1] if part.talk else 'without a word'}")
            elif now >= self._due[name]:
                del self._due[name]
                part.start()
        self._tend_servers()

    def _tend_servers(self) -> None:
        """A full disk may end a server."""
        server = self.postgresql
        if server is not None and "postgresql" not in self._is_away and not (server.is_running or self.disk.is_full):
            self.ended.append("postgresql was not there")
            self._start_postgresql()
        if "valkey" not in self._is_away and not (self.valkey.is_running or self.valkey_disk.is_full):
            self.ended.append("valkey was not there")
            self.valkey.start()

    def _start_postgresql(self) -> None:
        assert self.postgresql is not None
        with suppress(SubprocessError):  # its disk is full, or it is about to end: the next look finds out
            self.postgresql.start()

    def kill(self, target: str) -> Callable[[], None]:
        """SIGKILL a part, PostgreSQL, the engine, or everything; what is returned starts it again."""
        if target == EVERYTHING:
            return self._kill_everything()
        self._is_away.add(target)
        if target == "postgresql":
            self._tree(target).kill()
            return partial(self._back, target, self._start_postgresql)
        if target == "engine":
            self._kill_engine()
            return partial(self._back, target, self._start_engine)
        self.parts[target].kill()
        return partial(self._back, target, self.parts[target].start)

    def _kill_everything(self) -> Callable[[], None]:
        databases = ("postgresql",) if self.postgresql is not None else ()
        parts = [self.kill(name) for name in PARTS]
        servers = [self.kill(name) for name in databases] + [self.restart_valkey(keeps_data=False)]

        def start() -> None:
            for back in (*servers, *parts):
                back()

        return start

    def _kill_engine(self) -> None:
        """The log in its memory dies with it; the file has those calls that ended, and it is asked for the others."""
        if not self.engine.is_running:
            return
        under_way = self.engine.under_way() if self.engine_listens else []
        self.engine.kill()
        ended = decode(self._engine_log.read_bytes())
        os.truncate(self._engine_log, 0)
        known, now = {row.id for row in ended}, time.time()
        cut_off = [replace(row, ended_at=now, outcome=KILLED) for row in under_way if row.id not in known]
        self._lost_calls += [*ended, *cut_off]

    def _start_engine(self) -> None:
        if not self.engine.is_running:
            self.engine.start()

    def restart_valkey(self, *, keeps_data: bool) -> Callable[[], None]:
        """SIGKILL Valkey; what is returned starts it again, with the data of this moment or with none."""
        self._is_away.add("valkey")
        self.valkey.kill()
        if not keeps_data:
            shutil.rmtree(self.valkey.folder / VALKEY_FOLDER, ignore_errors=True)
        return partial(self._back, "valkey", self._start_valkey)

    def _start_valkey(self) -> None:
        if not self.valkey.is_running and not self.valkey_disk.is_full:  # it needs room to start: see _tend_servers
            self.valkey.start()

    def pause(self, target: str) -> Callable[[], None]:
        """SIGSTOP; what is returned lets it go on."""
        if target in self.parts:
            part = self.parts[target]
            part.pause()
            return part.resume
        tree = self._tree(target)
        tree.send(signal.SIGSTOP)
        return lambda: tree.send(signal.SIGCONT)

    def disk_of(self, target: str) -> SmallDisk:
        """That of Valkey, or of the database."""
        return self.valkey_disk if target == "valkey" else self.disk

    def step_clock(self, target: str, seconds: float) -> Callable[[], None]:
        """The wall clock of a part, or of everything, is off from now on; what is returned puts it right."""
        parts = [part for name, part in self.parts.items() if target in (name, EVERYTHING)]
        for part in parts:
            part.step_clock(seconds)

        def back() -> None:
            for part in parts:
                part.step_clock(0.0)

        return back

    def _tree(self, target: str) -> Tree:
        if target == "engine":
            return Tree(self.engine.pid if self.engine.is_running else None)
        if target == "valkey":
            assert self.valkey.process is not None
            return Tree(self.valkey.process.pid)
        assert self.postgresql is not None
        return Tree(self.postgresql.pid)

    def _back(self, target: str, start: Callable[[], None]) -> None:
        start()
        self._is_away.discard(target)
        self._due.pop(target, None)

    def reaches_database(self) -> bool:
        """Whether the database answers the driver."""
        with suppress(StoreUnavailable, StoreConflict):
            with self.db.read() as connection:
                connection.execute(text("SELECT 1"))
            return True
        return False

    def _stop_parts(self) -> None:
        for part in self.parts.values():
            part.ask_to_stop()
        for part in self.parts.values():
            part.stop()

    def talk(self) -> dict[str, str]:
        """What each part has written since this was asked last."""
        return {name: part.news() for name, part in self.parts.items()}
