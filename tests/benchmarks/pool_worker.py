"""A Celery worker on any of Celery's pools, all with one task body: keep requests in flight until the time is up.

`python -m tests.benchmarks.pool_worker POOL CHILDREN REDIS_URL BASE_URL NOTES`: one JSON line goes to the file NOTES
when a task begins and one when it ends.
"""

import asyncio
import contextlib
import json
import os
import sys
import threading
import time
from functools import cache
from typing import Any

from celery.signals import worker_shutting_down

from jobs.answer import parse_answer
from jobs.prompt import build_messages, response_format
from jobs.spec import ClassificationSpec
from tickets_batch.settings import Pool
from workers.app import TASK, create_app
from workers.client import ModelClient

AT_ONCE = 16
SPEC = ClassificationSpec(labels={"billing": "charges", "shipping": "parcels"}, max_output_tokens=24)


class Body:
    """What a task does: one event loop and one client to a process, as in production."""

    def __init__(self, base_url: str, *, in_thread: bool) -> None:
        pool = {"name": "gpu", "base_url": base_url, "model": "test-model", "capacity": {"slots": AT_ONCE}}
        self._loop = asyncio.new_event_loop()
        self._client = ModelClient(Pool.model_validate(pool), at_once=AT_ONCE)
        self._stopped = asyncio.Event()
        self._in_thread = in_thread
        if in_thread:
            threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, seconds: float) -> None:
        """Wait for the loop, where it has a thread; else run it here."""
        if self._in_thread:
            asyncio.run_coroutine_threadsafe(self._work(seconds), self._loop).result()
        else:
            self._loop.run_until_complete(self._work(seconds))

    def stop(self) -> None:
        """End what is in flight; from any thread, or a signal's handler."""
        self._loop.call_soon_threadsafe(self._stopped.set)

    async def _work(self, seconds: float) -> None:
        flights = [asyncio.create_task(self._classify_for_ever(number)) for number in range(AT_ONCE)]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)

    async def _classify_for_ever(self, number: int) -> None:
        while True:
            messages = build_messages(SPEC, "", f"Where is parcel {number}?")
            await self._client.classify(
                messages, response_format(SPEC), SPEC.max_output_tokens, parse=lambda text: parse_answer(SPEC, text)
            )


def main(pool: str, children: str, redis_url: str, base_url: str, notes: str) -> None:
    app = create_app(redis_url)
    bodies: list[Body] = []

    @cache
    def body() -> Body:  # made by the first task: with prefork in the child, never before the fork
        bodies.append(Body(base_url, in_thread=pool == "threads"))
        return bodies[0]

    @app.task(name=TASK)  # type: ignore[untyped-decorator]
    def work_on(seconds: float) -> None:
        _note(notes, "begins")
        body().run(seconds)
        _note(notes, "ends")

    def stop(**_: Any) -> None:
        for made in bodies:
            made.stop()

    worker_shutting_down.connect(stop, weak=False)
    options = [
        f"--pool={pool}",
        f"--concurrency={children}",
        "--loglevel=ERROR",
        "--without-mingle",
        "--without-gossip",
    ]
    app.worker_main(["--quiet", "worker", *options])


def _note(path: str, what: str) -> None:
    line = json.dumps({"what": what, "at": time.time()}) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)


if __name__ == "__main__":
    main(*sys.argv[1:])
