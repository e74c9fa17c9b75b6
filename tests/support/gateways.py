"""A gateway to test against, as the command runs it and on a thread of this process."""

import asyncio
import json
import os
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
from openai.types.chat import ChatCompletion

from gateway.server import serve
from scheduler.ledger import Ledger
from scheduler.pools import capacity_of
from scheduler.snapshot import Snapshot
from tests.support.command import Command
from tests.support.engines import post
from tests.support.wait import wait_until
from tickets_batch.local.environment import child_environment
from tickets_batch.settings import Settings, reveal

ROOT = Path(__file__).parents[2]
LISTENS = "the gateway listens on "


def chat_settings(redis_url: str, base_url: str, *, slots: int = 4, tokens: int = 16_000, **gateway: Any) -> Settings:
    """One shared pool, of which batch owns one slot and its tokens; the gateway on a free port."""
    protected = {"batch": {"slots": 1, "tokens": tokens // slots}}
    pool = {
        "name": "gpu",
        "base_url": base_url,
        "model": "test-model",
        "capacity": {"slots": slots, "tokens": tokens},
        "protected": protected,
    }
    return Settings(redis_url=redis_url, pool=[pool], gateway={"listen": "127.0.0.1:0"} | gateway)


@contextmanager
def running(settings: Settings) -> Iterator[str]:
    """A gateway on a thread of this process; its address, without /v1."""
    stop = threading.Event()
    said: list[str] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            serve(settings, stop, said.append)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="gateway", daemon=True)
    thread.start()
    try:
        line = wait_until(lambda: failed or said, "the gateway to listen")[0]
        if failed:
            raise failed[0]
        yield str(line).partition(LISTENS)[2].removesuffix("/v1")
    finally:
        stop.set()
        thread.join(15)
    if failed:
        raise failed[0]


@contextmanager
def commanded(settings: Settings, folder: Path) -> Iterator[tuple[Command, str]]:
    """`tickets-batch gateway` as a process, and its address without /v1."""
    settings = settings.model_copy(update={"home": folder / "home"})
    command = Command(
        [sys.executable, "-m", "tickets_batch", "gateway"],
        folder=ROOT,
        environment={**os.environ, **child_environment(settings)},
        output=folder / "gateway",
    )
    try:
        yield command, wait_until(lambda: _address(command), "the gateway to listen", 30) or ""
    finally:
        command.close()


def _address(command: Command) -> str | None:
    assert command.code is None, command.err
    found = [line.partition(LISTENS)[2] for line in command.talk if LISTENS in line]
    return found[0].removesuffix("/v1") if found else None


@contextmanager
def caller(address: str, api_key: str = "caller") -> Iterator[openai.OpenAI]:
    """An application with the usual client, which tries nothing twice."""
    plain = openai.DefaultHttpxClient(verify=False)  # loading certificates costs 90 ms
    base_url = f"{address}/v1"
    with openai.OpenAI(base_url=base_url, api_key=api_key, max_retries=0, timeout=20, http_client=plain) as client:
        yield client


def complete(address: str, body: dict[str, Any], api_key: str = "caller") -> ChatCompletion:
    """One chat request, answered whole."""
    with caller(address, api_key) as client:
        answer: ChatCompletion = client.chat.completions.create(**body)
        return answer


@asynccontextmanager
async def ledger_of(settings: Settings) -> AsyncIterator[Ledger]:
    """The ledger of the settings' first pool, for as long as the block runs."""
    pool = settings.pool[0]
    ledger = Ledger.connect(reveal(settings.redis_url or ""), pool.name, capacity_of(pool))
    yield ledger
    await ledger.aclose()


def snapshot(settings: Settings) -> Snapshot:
    async def read() -> Snapshot:
        async with ledger_of(settings) as ledger:
            return await ledger.snapshot()

    return asyncio.run(read())


def send(address: str, body: dict[str, Any]) -> socket.socket:
    """A request under way on a connection of its own."""
    parts = urlsplit(address)
    connection = socket.create_connection((parts.hostname, parts.port), timeout=20)
    connection.sendall(post("/v1/chat/completions", body))
    return connection


def until(connection: socket.socket, words: bytes) -> bytes:
    """What has come in once it holds these words."""
    received = b""
    while words not in received:
        part = connection.recv(65536)
        assert part, received
        received += part
    return received


def fetch(address: str, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    parts = urlsplit(address)
    connection = HTTPConnection(str(parts.hostname), parts.port, timeout=20)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def http(address: str, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, dict[str, Any]]:
    """The status and the JSON of an answer."""
    status, answer = fetch(address, method, path, body, **headers)
    return status, json.loads(answer)


def metric(address: str, line: str) -> float:
    """The value of one sample on the gateway's page of metrics, by its name and labels."""
    page = fetch(address, "GET", "/metrics")[1].decode()
    return next(float(found.rpartition(" ")[2]) for found in page.splitlines() if found.startswith(line + " "))
