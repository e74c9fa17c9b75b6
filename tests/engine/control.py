"""The paths by which a test steers the engine while it runs. Bodies and answers are JSON."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from tests.engine.faults import FaultPlan, Rule
from tests.engine.http import Exchange
from tests.engine.log import encode
from tests.engine.refusals import bad_request
from tests.engine.service import ModelService


class Control:
    """Faults, profile, settings, freezing, the log and the live state."""

    def __init__(self, service: ModelService) -> None:
        self._service = service

    def routes(self) -> dict[tuple[str, str], Callable[[Exchange], None]]:
        steps: dict[str, Callable[[dict[str, Any]], None]] = {
            "faults": self._set_faults,
            "profile": self._change_profile,
            "settings": self._change_settings,
            "freeze": lambda body: self._service.driver.freeze(body.get("seconds")),
            "thaw": lambda body: self._service.driver.thaw(),
            "reset": lambda body: self._service.reset(),
        }
        posts = {("POST", f"/control/{name}"): _posted(step) for name, step in steps.items()}
        gets = {"log": self._log, "calls": self._calls, "state": self._state}
        return posts | {("GET", f"/control/{name}"): answer for name, answer in gets.items()}

    def _set_faults(self, body: dict[str, Any]) -> None:
        """`{"rules": [...], "seed": 0}` replaces all rules; how often tickets have met them starts anew."""
        rules = [Rule.from_json(rule) for rule in body.get("rules", [])]
        self._service.faults = FaultPlan(rules, seed=body.get("seed", 0))

    def _change_profile(self, body: dict[str, Any]) -> None:
        driver = self._service.driver
        driver.set_profile(driver.core.profile.changed(body))

    def _change_settings(self, body: dict[str, Any]) -> None:
        self._service.settings = self._service.settings.changed(body)

    def _log(self, exchange: Exchange) -> None:
        """Rows as JSON lines in the order in which they ended; `?after=n` leaves out the first n."""
        after = int(parse_qs(exchange.request.query).get("after", ["0"])[0])
        rows = self._service.log.rows[after:]
        exchange.respond(200, b"".join(map(encode, rows)), "application/jsonl")

    def _calls(self, exchange: Exchange) -> None:
        exchange.respond(200, b"".join(map(encode, self._service.under_way())), "application/jsonl")

    def _state(self, exchange: Exchange) -> None:
        core = self._service.driver.core
        state = {
            "running": core.running,
            "waiting": core.waiting,
            "classes": {
                klass: {"running": running, "waiting": waiting}
                for klass, (running, waiting) in core.count_by_class().items()
            },
            "kv_usage": core.kv_usage,
            "ended": len(self._service.log.rows),
            "frozen": self._service.driver.clock.frozen,
        }
        exchange.respond(200, json.dumps(state).encode())


def _posted(step: Callable[[dict[str, Any]], None]) -> Callable[[Exchange], None]:
    def handle(exchange: Exchange) -> None:
        try:
            step(json.loads(exchange.request.body or b"{}"))
        except (ValueError, TypeError) as error:
            raise bad_request(str(error)) from None
        exchange.respond(200, b"{}")

    return handle
