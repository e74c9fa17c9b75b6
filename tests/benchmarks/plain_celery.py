"""A plain Celery pipeline, as people write it: one task per ticket, a result backend, the parent collects the results.

The task calls the library's own blocking client, one for each process, without streaming: less work for client and
engine than a stream. Nothing limits it, nothing is kept when a process dies, nobody can take a call back.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import openai
import psutil  # type: ignore[import-untyped]
from celery import Celery, group

from jobs.prompt import build_messages, response_format
from jobs.spec import ClassificationSpec
from tests.support.night import CHECKOUT, LABELS

REDIS, ENGINE = "PLAIN_CELERY_REDIS", "PLAIN_CELERY_ENGINE"  # addresses, in the environment of its processes
READY_SECONDS = 60.0
SPEC = ClassificationSpec(
    labels={label: f"about {label}" for label in LABELS},
    instructions="You sort a shop's support tickets.",
    max_output_tokens=24,
)

app = Celery("plain", broker=os.environ.get(REDIS), backend=os.environ.get(REDIS), set_as_current=False)
app.conf.update(broker_connection_retry_on_startup=True, worker_prefetch_multiplier=16)


@cache
def client() -> openai.OpenAI:
    return openai.OpenAI(base_url=os.environ[ENGINE], api_key="none", max_retries=0)


@app.task(name="plain.classify")  # type: ignore[untyped-decorator]
def classify(body: str) -> str:
    messages: Any = build_messages(SPEC, "", body)
    schema: Any = response_format(SPEC)
    answer = client().chat.completions.create(
        model="test-model", messages=messages, response_format=schema, max_tokens=24, temperature=0
    )
    return str(json.loads(answer.choices[0].message.content or "")["label"])


@dataclass(frozen=True, slots=True)
class Workers:
    """How Celery's worker runs."""

    pool: str
    concurrency: int

    def __str__(self) -> str:
        return f"{self.pool} {self.concurrency}"


class PlainPipeline:
    """A context manager: Celery's worker against a server for messages and results, and an engine."""

    def __init__(self, redis_url: str, base_url: str, workers: Workers, log: Path) -> None:
        self._environment = {REDIS: redis_url, ENGINE: base_url}
        self._workers = workers
        self._log = log
        app.conf.update(broker_url=redis_url, result_backend=redis_url)

    def __enter__(self) -> Self:
        options = ["--pool", self._workers.pool, "--concurrency", str(self._workers.concurrency)]
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "tests.benchmarks.plain_celery", "worker", *options, *quiet],
                cwd=CHECKOUT,
                env=os.environ | self._environment,
                stdout=log,
                stderr=log,
            )
        warm = group(classify.s(f"Where is parcel {n}?") for n in range(4 * self._workers.concurrency))
        warm.apply_async().get(timeout=READY_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(30)

    def run(self, bodies: Iterable[str]) -> tuple[float, Sequence[str]]:
        """Seconds from the first message to the last result in the parent, and the labels."""
        began = time.perf_counter()
        labels = group(classify.s(body) for body in bodies).apply_async().get()
        return time.perf_counter() - began, labels

    def cpu_seconds(self) -> float:
        """Of Celery's worker and its children so far."""
        parent = psutil.Process(self._process.pid)
        times = [process.cpu_times() for process in (parent, *parent.children(recursive=True))]
        return float(sum(each.user + each.system for each in times))
