"""The demo's engine: the real llama.cpp server on the real weights, as a child process."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import Request, urlopen

import psutil  # type: ignore[import-untyped]
import pytest

from jobs.answer import parse_answer
from jobs.prompt import build_messages, response_format
from jobs.spec import ClassificationSpec
from tests.support.wait import wait_until
from tickets_batch.demo import llama_server
from tickets_batch.errors import UserError
from tickets_batch.local.parent import PARENT_VARIABLE

SERVER = (sys.executable, "-m", "tickets_batch.demo.llama_server")
SPEC = ClassificationSpec(labels={"billing": "payments", "shipping": "parcels"}, max_output_tokens=16)
START_SECONDS = 60.0
END_SECONDS = 10.0


@contextmanager
def running(port: int = 0) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """The server's process and its base URL."""
    process = subprocess.Popen(
        [*SERVER, "--port", str(port)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        said, _, url = process.stdout.readline().partition(" ")
        assert said == "ready"
        yield process, url.strip()
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with running() as (_, url):
        yield url


def ask(base_url: str, **changes: Any) -> Any:
    body = {
        "model": llama_server.MODEL,
        "messages": build_messages(SPEC, "Parcel", "Where is my parcel?"),
        "max_tokens": SPEC.max_output_tokens,
        "temperature": 0,  # as the workers ask: else its white space may use the tokens up
    }
    request = Request(
        f"{base_url}/chat/completions", json.dumps(body | changes).encode(), {"Content-Type": "application/json"}
    )
    return urlopen(request, timeout=60)


def in_use(base_url: str) -> int:
    """Requests that hold a slot or wait for one."""
    with urlopen(f"{base_url.removesuffix('/v1')}/metrics", timeout=60) as page:
        samples = dict(line.split() for line in page.read().decode().splitlines() if not line.startswith("#"))
    return int(samples["llamacpp:requests_processing"]) + int(samples["llamacpp:requests_deferred"])


@pytest.mark.timeout(300)
class TestServer:
    def test_answers_within_the_schema(self, base_url: str) -> None:
        with ask(base_url, response_format=response_format(SPEC)) as response:
            answer = json.load(response)
        assert answer["model"] == llama_server.MODEL
        assert parse_answer(SPEC, answer["choices"][0]["message"]["content"]) in SPEC.labels

    def test_a_stream_that_is_closed_frees_its_slot_long_before_it_would_end(self, base_url: str) -> None:
        stream = ask(base_url, stream=True, max_tokens=1_500, ignore_eos=True)
        assert stream.readline().startswith(b"data: ")
        assert in_use(base_url) == 1
        stream.close()
        wait_until(lambda: in_use(base_url) == 0, "the slot to be free", END_SECONDS)

    def test_a_port_in_use_is_one_line(self, base_url: str) -> None:
        port = base_url.rpartition(":")[2].removesuffix("/v1")
        second = subprocess.run([*SERVER, "--port", port], capture_output=True, text=True, timeout=START_SECONDS)
        assert (second.returncode, second.stdout) == (1, "")
        assert second.stderr.splitlines() == [
            f"port {port} cannot be used for the demo's engine: Address already in use"
        ]


@pytest.mark.timeout(300)
def test_ends_at_once_on_sigterm_and_has_said_nothing_but_that_it_is_ready() -> None:
    with running() as (process, _):
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=END_SECONDS)
        assert (process.returncode, rest) == (-signal.SIGTERM, "")


@pytest.mark.timeout(300)
def test_ends_when_its_parent_is_killed() -> None:
    start = (
        f"import os, subprocess; os.environ['{PARENT_VARIABLE}'] = str(os.getpid()); "
        f"subprocess.run({SERVER!r} + ('--port', '0'))"
    )
    with subprocess.Popen([sys.executable, "-c", start], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline().startswith(b"ready ")
        [server] = psutil.Process(parent.pid).children()
        os.kill(parent.pid, signal.SIGKILL)
        wait_until(lambda: not server.is_running(), "the server to end", END_SECONDS)


def test_without_the_weights_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_server, "WEIGHTS_PACKAGE", "no_such_weights")
    with pytest.raises(UserError, match=r"^the demo's model is not installed .*: run make install"):
        llama_server.find_weights()


def test_without_the_engine_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(UserError, match=r"^the demo's engine is not installed .*: run make install"):
        llama_server.start(0, 1)
