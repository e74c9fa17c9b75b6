"""A message on the queue with any heads and body: it goes through Celery's own hands, and never ends the worker."""

import base64
import json
import logging
from pathlib import Path
from typing import Any

from celery import Celery
from celery.concurrency.solo import TaskPool
from celery.exceptions import WorkerShutdown, WorkerTerminate
from celery.worker import WorkController
from kombu.connection import Connection
from kombu.transport.virtual.base import Message

from scheduler.dispatch import Task
from tests.fuzz.target import Target
from workers.app import QUEUE, TASK, create_app
from workers.process import MESSAGE

KINDS = ("application/json", "application/x-python-serialize", "application/x-yaml", "text/plain", "application/data")
HEADS: dict[str, object] = {"task": TASK, "id": "forged", "lang": "py", "argsrepr": "", "kwargsrepr": ""}


class Worker:
    """Celery's consumer of the worker process, with a task that only notes what it is called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, object, object]] = []
        app = self._app()
        controller: Any = WorkController(
            app=app, hostname="tickets-batch@here", pool_cls="solo", without_mingle=True, without_gossip=True
        )
        consumer: Any = controller.consumer
        pool = TaskPool(1, app=app)
        pool.start()
        consumer.pool = pool
        consumer.on_task_request = lambda request: request.execute_using_pool(pool)
        consumer.update_strategies()
        self._consumer = consumer
        self._handle = consumer.create_task_handler()
        self._channel = Connection("memory://").channel()

    def take(self, heads: dict[str, object], content_type: str, body: bytes) -> None:
        """Handle one message, which is then acknowledged or rejected."""
        envelope = {
            "body": base64.b64encode(body).decode(),
            "content-type": content_type,
            "content-encoding": "utf-8",
            "headers": heads,
            "properties": {
                "delivery_tag": "1",
                "body_encoding": "base64",
                "delivery_info": {"exchange": "", "routing_key": QUEUE},
            },
        }
        message = Message(envelope, self._channel, accept={"application/json"})
        logging.disable(logging.CRITICAL)  # each of them has its lines
        try:
            self._handle(message)
            self._consumer.perform_pending_operations()
        finally:
            logging.disable(logging.NOTSET)
        assert message.acknowledged, "a message that comes again and again"

    def _app(self) -> Celery:
        app = create_app("memory://")

        @app.task(name=TASK, Request=MESSAGE)  # type: ignore[untyped-decorator]
        def work_on(batch_id: str, at_once: int, seconds: float) -> None:
            self.calls.append((batch_id, at_once, seconds))

        app.finalize()
        return app


WORKER = Worker()


def judge(data: bytes, folder: Path) -> None:
    """A byte for the kind, a line of heads, and the body."""
    kind, (head, _, body) = KINDS[(data[:1] or b"\0")[0] % len(KINDS)], data[1:].partition(b"\n")
    try:
        heads = json.loads(head)
    except (ValueError, RecursionError):
        heads = {}
    WORKER.calls.clear()
    try:
        WORKER.take(HEADS | heads if isinstance(heads, dict) else HEADS, kind, body)
    except (WorkerShutdown, WorkerTerminate):
        raise AssertionError("a message has told the worker to stop") from None
    assert len(WORKER.calls) <= 1
    assert not WORKER.calls or kind == "application/json"


RIGHT = json.dumps([[], Task("batch_1", 4, 1.0).arguments(), {"callbacks": None, "chain": None}]).encode()
TARGET = Target(
    judge,
    seeds=(
        b"\0\n" + RIGHT,
        b'\0{"task": "os.system"}\n' + RIGHT,
        b'\0{"expires": "2001-01-01T00:00:00+00:00", "timelimit": [1, 2], "retries": 3}\n' + RIGHT,
        b'\0{"shadow": "x", "root_id": 7, "stamps": {}, "group": "g", "ignore_result": false}\n' + RIGHT,
        b'\0{"id": null}\n[["a", 1, 1.0], {}, {"chain": [{"task": "os.system", "args": ["id"]}]}]',
        b"\0{}\n[1, 2, 3]",
        b"\0[]\n" + RIGHT,
        b"\1\ncos\nsystem\n(S'id'\ntR.",
        b"\2\n!!python/object/apply:os.system ['id']",
    ),
    words=('{"task": ', '"id": ', '"eta": "', '"expires": ', '"timelimit": ', '"callbacks": [', '"errbacks": [', "null",
           '"chain": [', '"chord": {', '"shadow": ', '"kwargs": ', '"args": ', "2027-11-30T00:00:00", "[]", "{}",
           "[[], ", '"batch_id": ', '"reply_to": ', '"stamped_headers": [', '"delivery_info": ', '"origin": ', "1e999"),
    most_bytes=512,
)  # fmt: skip
