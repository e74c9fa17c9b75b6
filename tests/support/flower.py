"""Flower as the pages start it, beside the services of a night."""

import base64
import json
import sys
from dataclasses import dataclass
from http.client import HTTPConnection

from tests.support.command import Command
from tests.support.night import CHECKOUT, Night
from tickets_batch.local.ports import free_port

USER = "operator:a-long-password"
PROGRAM = (sys.executable, "-m", "celery", "-A", "workers.monitor", "flower")
CONFIGURATION = CHECKOUT / "deploy" / "flower" / "flowerconfig.py"


@dataclass(frozen=True, slots=True)
class Page:
    status: int
    text: str


@dataclass(frozen=True, slots=True)
class Flower:
    """One that runs, and what it answers."""

    command: Command
    port: int

    def ask(self, path: str, method: str = "GET", user: str | None = USER) -> Page:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=20)
        shown = base64.b64encode((user or "").encode()).decode()
        connection.request(method, path, headers={"Authorization": f"Basic {shown}"} if user else {})
        answer = connection.getresponse()
        page = Page(answer.status, answer.read().decode(errors="replace"))
        connection.close()
        return page

    def tasks(self) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = json.loads(self.ask("/api/tasks").text)
        return found

    def answers(self) -> bool:
        try:
            return self.ask("/healthcheck").status == 200
        except OSError:
            return False


def start_flower(night: Night) -> Flower:
    """Begin it on a port of its own; it ends with the night."""
    users = night.folder / "flower-users"
    users.write_text(f"{USER}\n", encoding="utf-8")
    night.environment["FLOWER_USERS_FILE"] = str(users)
    port = free_port()
    return Flower(night.start(f"--conf={CONFIGURATION}", f"--port={port}", program=PROGRAM), port)
