"""One worker process: Celery in one thread, the event loop in another, a heartbeat in a third.

Celery's pool is `threads` with one task at a time: the task only waits for the loop, where the requests live, so that
one process carries hundreds of them. What threads lack in Celery (time limits, terminate) is the product's own here.
"""

import logging
import os
import secrets
import socket
import threading

from celery import Celery
from celery.worker import WorkController
from celery.worker import state as celery_state

from jobs.store import services
from jobs.store.database import Database
from jobs.store.errors import StoreConflict, StoreUnavailable
from scheduler.scrape import served
from tickets_batch.errors import UserError
from tickets_batch.settings import Settings, reveal
from workers.app import TASK, create_app
from workers.runtime import Runtime

log = logging.getLogger(__name__)

BEAT_SECONDS = 2.0
CELERY_STOP_SECONDS = 5.0
CELERY_AGAIN_SECONDS = 1.0
MESSAGE = "workers.message:Message"


def run(settings: Settings, stop: threading.Event) -> None:
    """Work until `stop` is set, then end gracefully. Raises UserError when Redis or the database is not there.

    Also where the metrics cannot be served.
    """
    identity = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
    db = Database.open(settings.effective_database_url)
    runtime = Runtime(settings, db, identity)
    runtime.start()
    heartbeat = _Heartbeat(db, identity, runtime)
    heartbeat.start()
    celery = threading.Thread(target=_consume, args=(_app(settings, runtime, heartbeat), identity, stop), daemon=True)
    celery.start()
    log.info("worker %s is at work", identity)
    try:
        with served(runtime.metrics.registry, settings.worker.metrics_listen, "worker.metrics_listen"):
            while not stop.wait(0.5):
                if not celery.is_alive():
                    raise UserError("the Celery worker ended by itself: its log says why")
    finally:
        runtime.stop(settings.worker.stop_grace_seconds)
        celery_state.should_stop = os.EX_OK  # type: ignore[assignment]  # Celery declares it None
        celery.join(CELERY_STOP_SECONDS)
        heartbeat.stop()
        db.dispose()
        log.info("worker %s has ended", identity)


def _app(settings: Settings, runtime: Runtime, heartbeat: "_Heartbeat") -> Celery:
    app = create_app(reveal(settings.redis_url or ""))

    @app.task(name=TASK, Request=MESSAGE)  # type: ignore[untyped-decorator]
    def work_on(batch_id: str, at_once: int, seconds: float) -> None:
        heartbeat.now()  # the scheduler should know at once that this process is busy
        runtime.drive(batch_id, at_once, seconds)
        heartbeat.now()

    return app


def _consume(app: Celery, identity: str, stop: threading.Event) -> None:
    """Take tasks until `stop` is set, whatever ends Celery meanwhile: what is no message, or a forged command."""
    app.finalize()
    while not stop.is_set():
        WorkController(
            app=app,
            hostname=f"tickets-batch@{identity}",
            pool_cls="threads",
            concurrency=1,
            queues=None,
            loglevel="WARNING",
            task_events=True,
            without_mingle=True,
            without_gossip=True,
        ).start()
        if not stop.wait(CELERY_AGAIN_SECONDS):
            log.error("Celery ended by itself, the lines above say why; it begins again")


class _Heartbeat:
    """Tells the store that this process is alive, and what it does."""

    def __init__(self, db: Database, identity: str, runtime: Runtime) -> None:
        self._db = db
        self._identity = identity
        self._runtime = runtime
        self._due = threading.Event()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def now(self) -> None:
        """Beat at once."""
        self._due.set()

    def stop(self) -> None:
        self._ending = True
        self._due.set()
        self._thread.join()

    def _run(self) -> None:
        host, pid = socket.gethostname(), os.getpid()
        while not self._ending:
            try:
                services.beat(self._db, "worker", self._identity, host, pid, self._runtime.detail())
            except (StoreUnavailable, StoreConflict) as error:
                log.warning("the heartbeat was not written: %s", error)
            self._due.wait(BEAT_SECONDS)
            self._due.clear()
        try:
            services.leave(self._db, "worker", self._identity)
        except (StoreUnavailable, StoreConflict) as error:
            log.warning("the worker did not sign off: %s", error)
