"""Alerts to an address of the operator's: sent from a thread of its own, so that no loop waits for it."""

import json
import logging
import queue
import threading
from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import urlsplit

import httpx2
from prometheus_client import Counter
from tenacity import (
    Retrying,
    before_sleep_log,
    retry_if_exception_type,
    sleep_using_event,
    stop_after_attempt,
    stop_when_event_set,
    wait_exponential_jitter,
)

from scheduler.signals.fetch import in_words
from tickets_batch.errors import UserError

log = logging.getLogger(__name__)

ANSWER_SECONDS = 5.0
ATTEMPTS = 6  # over about a minute
LONGEST_REST_SECONDS = 30.0
WAITING = 100  # alerts kept while the address does not answer: then the oldest goes
LEAVING_SECONDS = 2.0  # what may still be sent at the end


class AlertNotTaken(UserError):
    """The address did not take an alert now; it may later."""


class Webhook:
    """Posts each alert as a JSON object, in order; a context manager. Without a URL it tells nobody.

    Sent again until the address answers with 2xx, six times over about a minute; an answer of 4xx, which will be the
    same the next time, ends it at once. What could not be told is in the log, and the alert itself is in the events.
    """

    def __init__(self, url: str | None) -> None:
        self._url = url
        self.alerts = Counter(
            "tickets_batch_scheduler_alerts", "Alerts by whether the webhook took them.", ["outcome"], registry=None
        )
        self._told, self._not_told = (self.alerts.labels(outcome) for outcome in ("told", "not_told"))
        self._waiting: queue.Queue[Mapping[str, Any] | None] = queue.Queue(WAITING)
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)

    def __enter__(self) -> Self:
        if self._url:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        if self._url:
            self.tell(None)
            self._thread.join(LEAVING_SECONDS)

    def tell(self, alert: Mapping[str, Any] | None) -> None:
        """Have an alert sent; returns at once."""
        while self._url:
            try:
                self._waiting.put_nowait(alert)
            except queue.Full:
                log.warning("an alert was not told: %d newer ones are waiting", WAITING)
                self._waiting.get_nowait()
                self._not_told.inc()
            else:
                return

    def _run(self) -> None:
        again = Retrying(
            retry=retry_if_exception_type(AlertNotTaken),
            stop=stop_after_attempt(ATTEMPTS) | stop_when_event_set(self._leaving),
            wait=wait_exponential_jitter(initial=1, max=LONGEST_REST_SECONDS),
            sleep=sleep_using_event(self._leaving),
            before_sleep=before_sleep_log(log, logging.WARNING),
            reraise=True,
        )
        while (alert := self._waiting.get()) is not None:
            try:
                again(self._post, alert)
            except UserError as error:
                self._not_told.inc()
                log.error("an alert was not told: %s", error)
            except Exception:
                self._not_told.inc()
                log.exception("an alert was not told")
            else:
                self._told.inc()

    def _post(self, alert: Mapping[str, Any]) -> None:
        url = str(self._url)
        where = urlsplit(url).hostname  # the path may hold a secret
        try:
            answer = httpx2.post(
                url,
                content=json.dumps(alert).encode(),
                headers={"Content-Type": "application/json"},
                timeout=ANSWER_SECONDS,
                follow_redirects=False,
                trust_env=False,
            )
        except (httpx2.HTTPError, OSError) as error:
            raise AlertNotTaken(f"the webhook at {where} does not answer: {in_words(error)}") from None
        except httpx2.InvalidURL as error:
            raise UserError(f"the webhook's URL cannot be used: {error}") from None
        if answer.is_success:
            return
        said = f"the webhook at {where} answers {answer.status_code}"
        is_final = answer.is_client_error and answer.status_code not in (408, 425, 429)
        raise UserError(said) if is_final else AlertNotTaken(said)
