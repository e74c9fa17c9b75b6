"""`scheduler`, `worker`, `gateway` and `up`: what runs until it is told to stop."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click

from tickets_batch.cli.database import opened
from tickets_batch.cli.frame import Call, verb
from tickets_batch.cli.intent import require_keys, require_pool
from tickets_batch.cli.ledgers import Ledgers
from tickets_batch.cli.logs import log_to_stderr
from tickets_batch.local.open_files import make_room_for, of_worker
from tickets_batch.local.parent import die_with_parent
from tickets_batch.local.services import IN_ORDER, WITH_GATEWAY, EmbeddedServices, worker_program
from tickets_batch.local.supervisor import TICK_SECONDS, Supervisor
from tickets_batch.settings import Settings, reveal
from tickets_batch.words import counted


@verb()
@click.pass_obj
def scheduler_command(call: Call) -> None:
    """Run the scheduler until SIGTERM or Ctrl-C.

    Several may run: one leads, and another takes over within seconds when it goes.
    """
    from scheduler.service import Scheduler
    from workers.app import TASK_SECONDS, create_app
    from workers.queue import TaskQueue

    with _service(call) as (settings, stop), opened(settings) as db:
        queue = TaskQueue(create_app(reveal(settings.redis_url or "")))
        Scheduler(settings, db, queue, settings.worker.at_once, TASK_SECONDS).run(stop)


@verb()
@click.option("--processes", type=click.IntRange(1, 256), help="How many; default: worker.processes of the settings.")
@click.pass_obj
def worker_command(call: Call, processes: int | None) -> None:
    """Run worker processes until SIGTERM or Ctrl-C.

    On SIGTERM the jobs in flight are finished within worker.stop_grace_seconds, or go back unspent.
    """
    with _service(call) as (settings, stop):
        require_keys(settings)
        if (processes or settings.worker.processes) > 1:
            _supervise_workers(settings, processes or settings.worker.processes, stop)
        else:
            from workers.process import run

            requests = counted(settings.worker.at_once, "request")
            make_room_for(of_worker(settings), f"{requests} at a time (worker.at_once)")
            run(settings, stop)


@verb()
@click.pass_obj
def gateway_command(call: Call) -> None:
    """Run the chat's door until SIGTERM or Ctrl-C.

    An OpenAI-compatible address that admits chat before batch. It needs no database, and serves without Redis too. On
    SIGTERM the answers under way have a few seconds to end.
    """
    from gateway.server import serve

    die_with_parent()
    stop = _told_to_stop()
    log_to_stderr(call.debug)
    settings = call.settings()
    require_pool(settings)
    with _redis(settings) as settings:
        serve(settings, stop, _say)


@verb()
@click.pass_obj
def up_command(call: Call) -> None:
    """Run everything on this machine until SIGTERM or Ctrl-C.

    That is the scheduler, the workers, the gateway if the settings have a [gateway], and a Valkey server unless
    redis_url is set. Whatever dies is started again. Their logs are in the logs directory under home.
    """
    settings = call.settings()
    stop = _told_to_stop()
    _check(settings)
    require_keys(settings)
    wanted = WITH_GATEWAY if "gateway" in settings.model_fields_set else IN_ORDER
    with EmbeddedServices(settings, wanted, said=_say) as services:
        running = [service for service in wanted if services.owns(service)]
        _say(f"running {', '.join(running)}" if running else "another command runs everything already: standing by")
        if "gateway" in running:
            _say(f"the chat's door: http://{settings.gateway.listen}/v1")
        _say(f"logs: {settings.home.absolute() / 'logs'}; stop with Ctrl-C")
        stop.wait()


@contextmanager
def _service(call: Call) -> Iterator[tuple[Settings, threading.Event]]:
    """Settings with a Redis to use and a database that is ready, and the event that a signal sets."""
    die_with_parent()
    stop = _told_to_stop()
    log_to_stderr(call.debug)
    settings = call.settings()
    _check(settings)
    with _redis(settings) as settings:
        yield settings, stop


@contextmanager
def _redis(settings: Settings) -> Iterator[Settings]:
    """The settings with a Redis in them: the one that they name, or an embedded one, which runs meanwhile."""
    if settings.redis_url is not None:
        yield settings
        return
    with EmbeddedServices(settings, ["valkey"], said=_say) as services:
        yield services.settings


def _check(settings: Settings) -> None:
    """What is not there at the start is said at once; later it is waited for. Raises UserError."""
    require_pool(settings)
    with opened(settings):
        pass
    if settings.redis_url is not None:
        with Ledgers(settings) as ledgers:
            ledgers.require()


def _supervise_workers(settings: Settings, processes: int, stop: threading.Event) -> None:
    """Runs in the main thread, with which the kernel ends the workers."""
    supervisor = Supervisor(_say, stop_grace_seconds=settings.worker.stop_grace_seconds + 5)
    try:
        for number in range(1, processes + 1):
            supervisor.start(worker_program(number, settings, log=None))
        while not stop.wait(TICK_SECONDS):
            supervisor.tick()
    finally:
        supervisor.stop()


def _told_to_stop() -> threading.Event:
    """An event that SIGTERM and Ctrl-C set; the second signal ends the process without waiting."""
    stop = threading.Event()

    def tell(number: int, _: FrameType | None) -> None:
        if stop.is_set():
            raise SystemExit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, tell)
    return stop


def _say(line: str) -> None:
    click.echo(f"tickets-batch: {line}", err=True)
