"""The embedded services of one `home`: run by whoever came first, used by everybody, taken over when the owner goes."""

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from scheduler.pools import found_ledgers
from tickets_batch.errors import UserError
from tickets_batch.local import valkey
from tickets_batch.local.child import Program
from tickets_batch.local.environment import child_environment
from tickets_batch.local.home import Home
from tickets_batch.local.ports import answers_http, reachable
from tickets_batch.local.process import end_leftovers, record
from tickets_batch.local.supervisor import READY_SECONDS, TICK_SECONDS, Supervisor
from tickets_batch.settings import Secret, Settings, reveal

Service = Literal["valkey", "gateway", "scheduler", "worker"]
IN_ORDER: tuple[Service, ...] = ("valkey", "scheduler", "worker")  # what a batch needs
WITH_GATEWAY: tuple[Service, ...] = ("valkey", "gateway", "scheduler", "worker")  # the chat's door is closed last
COMMAND = (sys.executable, "-P", "-m", "tickets_batch")  # -P: the directory we are called in holds no modules of ours
LOOK_FOR_FREE_SECONDS = 0.5


class EmbeddedServices:
    """Runs the wanted services while it is entered, and leaves nothing running.

    Each service has one owner per home, the holder of its lock. A second command attaches to what the first one runs
    and takes over, within a second, what the first leaves behind; an embedded Valkey comes back on the same address,
    empty. `said` is told in one line when a service was started again or taken over, from another thread.
    Entering raises UserError when a service does not start.
    """

    def __init__(
        self, settings: Settings, want: Collection[Service], said: Callable[[str], None] = lambda line: None
    ) -> None:
        wanted = {service for service in want if service != "valkey" or settings.redis_url is None}
        self._home = Home(settings.home)
        self._locks = {service: self._home.lock(service) for service in WITH_GATEWAY if service in wanted}
        self._said = said
        self._stopping = threading.Event()
        self._usable = threading.Event()
        self._failure: Exception | None = None
        self._is_alive = False
        # A child is killed by the kernel when the thread that started it ends: this one lives as long as they do.
        self._thread = threading.Thread(target=self._run, name="embedded-services", daemon=True)
        self.settings = settings
        if settings.redis_url is None:
            self.settings = settings.model_copy(update={"redis_url": Secret(file=self._home.redis_url_file)})

    @property
    def redis_url(self) -> str:
        """The address of the Redis or Valkey in use, with its password."""
        assert self.settings.redis_url is not None  # noqa: S101 - set above
        return reveal(self.settings.redis_url)

    def alive(self) -> bool:
        """True when every process of the services that this command owns is running now."""
        return self._is_alive

    def owns(self, service: Service) -> bool:
        """True when this command runs the service, False when it is attached to another command's."""
        return service in self._locks and self._locks[service].is_held

    def __enter__(self) -> Self:
        self._home.make()
        if "valkey" in self._locks:
            valkey.server_path()
        self._thread.start()
        try:
            self._usable.wait()
        except BaseException:
            self._leave()
            raise
        if self._failure is not None:
            self._leave()
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        supervisor = Supervisor(self._said, stop_grace_seconds=self.settings.worker.stop_grace_seconds + 5)
        try:
            self._keep_running(supervisor)
        except Exception as error:
            self._failure = error
            if self._usable.is_set():
                self._said(f"the embedded services stopped: {error}")
        finally:
            self._is_alive = False
            supervisor.stop()
            for lock in self._locks.values():
                lock.release()
            self._usable.set()

    def _keep_running(self, supervisor: Supervisor) -> None:
        taken = self._take_free_locks()
        for service in taken:
            self._start(service, supervisor)
            if service == "valkey" and "worker" in taken:
                # Both are new: no earlier worker holds a permit, so that batch need not wait for one lease.
                asyncio.run(found_ledgers(self.redis_url, self.settings.pool))
        self._wait_for_anothers_valkey(supervisor)
        look_again_at = 0.0
        while not self._stopping.wait(TICK_SECONDS):
            if supervisor.tick():
                self._write_down(supervisor)
            if time.monotonic() >= look_again_at:
                look_again_at = time.monotonic() + LOOK_FOR_FREE_SECONDS
                self._take_over(supervisor)
            self._is_alive = all(supervisor.pids(service) for service, lock in self._locks.items() if lock.is_held)
            self._usable.set()

    def _take_free_locks(self) -> list[Service]:
        """All locks first, starts after: two commands that begin together do not end with half the services each."""
        return [service for service, lock in self._locks.items() if not lock.is_held and lock.take()]

    def _take_over(self, supervisor: Supervisor) -> None:
        taken = self._take_free_locks()
        if taken:
            self._said(f"running {', '.join(taken)} from here on: the command that did is gone")
        for service in taken:
            try:
                self._start(service, supervisor)
            except UserError as error:
                self._said(str(error))

    def _start(self, service: Service, supervisor: Supervisor) -> None:
        end_leftovers(self._home.running_file(service))
        for program in self._programs(service):
            supervisor.start(program, give_up=self._stopping.is_set)
            self._write_down(supervisor)

    def _wait_for_anothers_valkey(self, supervisor: Supervisor) -> None:
        """Its owner may be just about to start it, or to go."""
        deadline = time.monotonic() + READY_SECONDS
        while "valkey" in self._locks and not valkey.answers(self._home.redis_url()):
            if time.monotonic() > deadline:
                raise UserError(
                    f"another command owns the embedded server under {self._home.path}, but it does not answer: "
                    f"see {self._home.logs / 'valkey.log'}"
                )
            if self._stopping.wait(TICK_SECONDS):
                return
            self._take_over(supervisor)

    def _programs(self, service: Service) -> Iterator[Program]:
        if service == "valkey":
            yield valkey.prepare(self._home)
            return
        if service != "worker":
            environment = child_environment(self.settings, service)
            log = self._home.logs / f"{service}.log"
            # Where another program has the port, the gateway ends with its reason before it is ready.
            is_ready = self._is_door_open if service == "gateway" else None
            yield Program(service, service, (*COMMAND, service), log, environment, is_ready)
            return
        for number in range(1, self.settings.worker.processes + 1):
            yield worker_program(number, self.settings, self._home.logs / f"worker-{number}.log")

    def _is_door_open(self) -> bool:
        listen = self.settings.gateway.listen
        is_any_port = listen.endswith(":0")  # the system chooses one, which is in the gateway's log
        return is_any_port or answers_http(f"http://{reachable(listen)}/healthz")

    def _write_down(self, supervisor: Supervisor) -> None:
        for service, lock in self._locks.items():
            if lock.is_held:
                # A full disk must not stop the services: the record is only for whoever comes after a crash.
                with contextlib.suppress(OSError):
                    record(self._home.running_file(service), supervisor.pids(service).values())


def worker_program(number: int, settings: Settings, log: Path | None) -> Program:
    """One worker process, as `up`, `submit --wait` and `worker --processes N` start it."""
    argv = (*COMMAND, "worker", "--processes", "1")
    if settings.worker.metrics_listen is not None:
        listen = nth_address(settings.worker.metrics_listen, number)
        settings = settings.model_copy(update={"worker": settings.worker.model_copy(update={"metrics_listen": listen})})
    return Program(f"worker-{number}", "worker", argv, log, child_environment(settings, "worker"))


def nth_address(listen: str, number: int) -> str:
    """Where the `number`th process listens: the first has HOST:PORT itself, each further one the next port."""
    host, _, port = listen.rpartition(":")
    return f"{host}:{int(port) + number - 1}"
