"""Alerts on their way to an address: in order, again where it may help, and never in anybody's way."""

import logging
import threading
import time
from collections.abc import Iterator

import pytest

from scheduler.webhook import LEAVING_SECONDS, WAITING, Webhook
from tests.support.hook import Hook
from tests.support.wait import wait_until
from tickets_batch.local.ports import free_port


@pytest.fixture
def address() -> Iterator[Hook]:
    with Hook.listening() as hook:
        yield hook


def numbers(address: Hook) -> list[int]:
    """Which alerts came, in their order."""
    return [alert["number"] for alert in address.got]


def counted(webhook: Webhook) -> dict[str, float]:
    """What Prometheus sees of it."""
    (family,) = webhook.alerts.collect()
    return {one.labels["outcome"]: one.value for one in family.samples if one.name.endswith("_total")}


def test_alerts_come_in_order(address: Hook) -> None:
    with Webhook(address.url) as webhook:
        for number in range(5):
            webhook.tell({"number": number})
        wait_until(lambda: len(address.got) == 5, "all five")
    assert numbers(address) == list(range(5))
    assert counted(webhook) == {"told": 5, "not_told": 0}


@pytest.mark.parametrize("status", [500, 503, 429, 408])
def test_what_was_not_taken_comes_again(address: Hook, status: int) -> None:
    address.statuses = [status]
    with Webhook(address.url) as webhook:
        webhook.tell({"number": 1})
        webhook.tell({"number": 2})
        wait_until(lambda: len(address.got) == 3, "the first again, then the second")
    assert numbers(address) == [1, 1, 2]


def test_what_will_never_be_taken_comes_once(address: Hook, caplog: pytest.LogCaptureFixture) -> None:
    address.statuses = [404, 301]
    with Webhook(address.url) as webhook:
        webhook.tell({"number": 1})
        wait_until(lambda: "answers 404" in caplog.text, "a line in the log")
    assert numbers(address) == [1]
    assert "secret" not in caplog.text
    assert counted(webhook) == {"told": 0, "not_told": 1}


def test_an_address_that_does_not_answer_holds_nobody_up(address: Hook) -> None:
    address.may_answer.clear()
    with Webhook(address.url) as webhook:
        webhook.tell({"number": 0})
        wait_until(lambda: numbers(address) == [0], "the first on its way")
        began = time.monotonic()
        for number in range(1, WAITING + 51):
            webhook.tell({"number": number})
        assert time.monotonic() - began < 5
        address.may_answer.set()
        wait_until(lambda: numbers(address)[-1] == WAITING + 50, "the last", timeout_seconds=60)
    assert numbers(address) == [0, *range(51, WAITING + 51)]  # those that waited longest made room
    assert counted(webhook) == {"told": WAITING + 1, "not_told": 50}


def test_leaving_does_not_wait_for_who_is_away(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), Webhook(f"http://127.0.0.1:{free_port()}/") as webhook:
        webhook.tell({"number": 1})
        wait_until(lambda: "does not answer" in caplog.text, "the first attempt")
        began = time.monotonic()
    assert time.monotonic() - began < LEAVING_SECONDS + 1


def test_without_an_address_nobody_is_told() -> None:
    with Webhook(None) as webhook:
        webhook.tell({"number": 1})
    assert not [thread for thread in threading.enumerate() if thread.name == "webhook"]
