"""An address to which alerts are posted, and the alerts that came."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Self


class Hook:
    """Answers with `statuses` in turn, then with 204, as soon as it `may_answer`."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.got: list[Any] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                hook.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                hook.may_answer.wait(30)
                self.send_response(hook.statuses.pop(0) if hook.statuses else 204)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook/a-secret-word"

    @classmethod
    @contextmanager
    def listening(cls) -> Iterator[Self]:
        """One that listens on loopback meanwhile."""
        hook = cls()
        thread = threading.Thread(target=hook._server.serve_forever)
        thread.start()
        try:
            yield hook
        finally:
            hook.may_answer.set()
            hook._server.shutdown()
            thread.join()
            hook._server.server_close()
