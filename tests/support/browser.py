"""A real browser without a window, driven over a pipe by its own debugging protocol."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
LOADED = "Page.loadEventFired"
FAULTS = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled", "Network.loadingFailed")


def found_browser() -> str | None:
    """The browser of this machine, None where it has none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page of a browser; every event that it tells of is kept in `events`."""

    def __init__(self, asks: IO[bytes], answers: IO[bytes]) -> None:
        self._asks, self._answers = asks, answers
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []

    @classmethod
    @contextmanager
    def opened(cls, path: str, folder: Path) -> Iterator[Self]:
        """A browser that knows nothing and reaches nothing; `folder` is for what it keeps."""
        ours_to_read, theirs_to_write = os.pipe()
        theirs_to_read, ours_to_write = os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"]
        options += [f"--user-data-dir={folder}", "--window-size=1200,900", "--disable-background-networking"]
        # The browser reads its orders from descriptor 3 and answers on 4.
        started = f'exec "$0" "$@" 3<&{theirs_to_read} 4>&{theirs_to_write}'
        process = subprocess.Popen(
            ["bash", "-c", started, path, *options, "about:blank"],
            pass_fds=(theirs_to_read, theirs_to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(folder)},
        )
        os.close(theirs_to_read)
        os.close(theirs_to_write)
        with os.fdopen(ours_to_write, "wb", buffering=0) as asks, os.fdopen(ours_to_read, "rb") as answers:
            try:
                browser = cls(asks, answers)
                browser._attach()
                yield browser
                browser.ask("Browser.close", session=False)
            finally:
                try:
                    process.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def visit(self, url: str) -> None:
        """Go to a page, and wait until it has loaded."""
        self.events.clear()
        self.ask("Page.navigate", url=url)
        while not any(event["method"] == LOADED for event in self.events):
            self._read()

    def value(self, script: str) -> Any:
        """What a piece of script comes to on the page."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def faults(self) -> list[dict[str, Any]]:
        """What the page has written to its console, and what went wrong."""
        return [event for event in self.events if event["method"] in FAULTS]

    def requested(self) -> list[str]:
        """The addresses that the page asked for."""
        asked = (event for event in self.events if event["method"] == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in asked]

    def ask(self, method: str, *, session: bool = True, **parameters: Any) -> dict[str, Any]:
        """Give an order; its answer."""
        self._number += 1
        order: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session:
            order["sessionId"] = self._session
        self._asks.write(json.dumps(order).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            pass
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def _attach(self) -> None:
        (page,) = (
            target for target in self.ask("Target.getTargets", session=False)["targetInfos"] if target["type"] == "page"
        )
        attached = self.ask("Target.attachToTarget", session=False, targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def _read(self) -> dict[str, Any]:
        told = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "the browser has gone"
            told += byte
        message: dict[str, Any] = json.loads(told)
        if "method" in message:
            self.events.append(message)
        return message
