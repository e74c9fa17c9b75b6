"""The demo's chat and its batch beside each other, and what both felt."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Self

import click

from jobs.prompt import build_messages
from jobs.spec import ClassificationSpec
from jobs.store import services
from jobs.store.batches import Batch
from tickets_batch.cli.database import opened
from tickets_batch.cli.intent import Options
from tickets_batch.cli.ledgers import Ledgers
from tickets_batch.cli.submit_and_wait import to_its_end
from tickets_batch.demo.chat import QUESTIONS, Answer, Chat, ask, messages_of
from tickets_batch.demo.felt import Got
from tickets_batch.errors import UserError
from tickets_batch.local.ports import answers_http
from tickets_batch.local.services import WITH_GATEWAY, EmbeddedServices
from tickets_batch.settings import Settings

SEED = 1
ALONE_SECONDS = 12.0
LEAST_GAP_SECONDS = 1.5
GAP_PER_ANSWER = 5.0  # the chat keeps the model busy for about a fifth of the time
READY_SECONDS = 60.0
LOOK_SECONDS = 0.25


def warm_up(base_url: str, model: str, spec: ClassificationSpec, at_once: int) -> Answer:
    """Let the model read once what all questions share and what all tickets share, so many at once; the last answer.

    Without it the first minute would show nothing else. Raises UserError when there is no answer.
    """
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(lambda word: ask(base_url, model, build_messages(spec, "", word)), QUESTIONS[:at_once]))
    for question in QUESTIONS[:3]:
        answer = ask(base_url, model, messages_of(question))
    if answer.ttft_seconds is None:
        raise UserError(f"the model does not answer a question within {answer.seconds:.0f} s: try again")
    return answer


@dataclass(frozen=True, slots=True)
class BesideChat:
    """A batch that has ended, what it got, and what the chat felt before it and beside it."""

    batch: Batch
    got: Got
    alone: list[Answer]
    beside: list[Answer]

    @classmethod
    def run(cls, settings: Settings, answer_seconds: float) -> Self:
        """Let people chat as often as a model can bear that needs so long for an answer; submit after a while."""
        gap_seconds = max(LEAST_GAP_SECONDS, GAP_PER_ANSWER * answer_seconds)
        base_url = f"http://{settings.gateway.listen}/v1"
        with EmbeddedServices(settings, WITH_GATEWAY, said=_say) as embedded:
            _wait_until_at_work(settings)
            _say(f"people ask the model something every {gap_seconds:.1f} s, alone for {ALONE_SECONDS:g} s ...")
            with Chat(base_url, settings.pool[0].model, every_seconds=gap_seconds, seed=SEED) as chat:
                time.sleep(ALONE_SECONDS)
                submitted_at = time.monotonic()
                with FloorWatch(embedded.settings) as floor:
                    batch = to_its_end(embedded.settings, Options())
                ended_at = time.monotonic()
        got = Got(batch.succeeded + batch.failed, _seconds(batch), floor.seconds, batch.yields)
        return cls(batch, got, chat.answers(until=submitted_at), chat.answers(submitted_at, ended_at))


class FloorWatch:
    """Looks now and then at what batch may hold; `seconds` is for how long that was its floor and no more."""

    def __init__(self, settings: Settings) -> None:
        self.seconds = 0.0
        self._settings = settings
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="floor", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leaving.set()
        self._thread.join()

    def _watch(self) -> None:
        looked = time.monotonic()
        with Ledgers(self._settings) as ledgers:
            while not self._leaving.wait(LOOK_SECONDS):
                pools = ledgers.readings(datetime.now(self._settings.zone)).values()
                now = time.monotonic()
                if any(pool.limit.slots <= pool.capacity.floor.slots for pool in pools):
                    self.seconds += now - looked
                looked = now


def _wait_until_at_work(settings: Settings) -> None:
    """Programs that start would disturb the chat. Raises UserError."""
    until = time.monotonic() + READY_SECONDS
    with opened(settings) as db:
        while True:
            roles = {service.role for service in services.alive(db)}
            if {"scheduler", "worker"} <= roles and answers_http(f"http://{settings.gateway.listen}/healthz"):
                return
            if time.monotonic() > until:
                raise UserError(f"the services are not all there after {READY_SECONDS:g} s: try on an idler machine")
            time.sleep(LOOK_SECONDS)


def _seconds(batch: Batch) -> float:
    if batch.started_at is None or batch.finished_at is None:
        return 0.0
    return (batch.finished_at - batch.started_at).total_seconds()


def _say(line: str) -> None:
    click.echo(line, err=True)
