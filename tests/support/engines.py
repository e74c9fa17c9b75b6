"""Ways in which tests call the test engine; its fixtures are in `engine_fixtures`."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import openai

from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.process import EngineHandle

T = TypeVar("T")
LABELS = ["billing", "shipping", "technical", "account", "Größe"]
SLOW = EngineProfile(slots=2, step_base_seconds=0.01)
"""10 ms a token: a long chat runs for as long as a test needs it to."""


@dataclass
class Heard:
    """What a client heard of one streamed answer."""

    text: str = ""
    chunks: int = 0
    reasoning: str = ""
    finish_reason: str | None = None
    usage: Any = None


def response_format(labels: list[str]) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"label": {"type": "string", "enum": labels}}}
    return {"type": "json_schema", "json_schema": {"name": "classification", "schema": schema}}


def ticket_body(ticket: str, **changes: Any) -> dict[str, Any]:
    """A request as the product would make it."""
    messages = [
        {"role": "system", "content": "You sort a shop's support tickets."},
        {"role": "user", "content": f"Sort this ticket.\n<ticket>\n{ticket}\n</ticket>"},
    ]
    body = {
        "model": "test-model",
        "messages": messages,
        "max_tokens": 32,
        "response_format": response_format(LABELS),
    }
    return body | changes


def chat_body(max_tokens: int, **changes: Any) -> dict[str, Any]:
    return {
        "model": "test-model",
        "messages": [{"role": "user", "content": "Tell me a story."}],
        "max_tokens": max_tokens,
    } | changes


async def listen(client: openai.AsyncOpenAI, body: dict[str, Any]) -> Heard:
    stream = await client.chat.completions.create(**body, stream=True, stream_options={"include_usage": True})
    heard = Heard()
    async for chunk in stream:
        for choice in chunk.choices:
            heard.text += choice.delta.content or ""
            heard.chunks += bool(choice.delta.content)
            heard.reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            heard.finish_reason = choice.finish_reason or heard.finish_reason
        heard.usage = chunk.usage or heard.usage
    return heard


def with_client(engine: EngineHandle, step: Callable[[openai.AsyncOpenAI], Awaitable[T]], api_key: str = "key") -> T:
    async def run() -> T:
        # Loading certificates costs 90 ms for each client, and nothing here is encrypted.
        plain = openai.DefaultAsyncHttpxClient(verify=False)
        async with openai.AsyncOpenAI(
            base_url=engine.base_url, api_key=api_key, max_retries=0, timeout=10, http_client=plain
        ) as client:
            return await step(client)

    return asyncio.run(run())


def ask(engine: EngineHandle, ticket: str, **changes: Any) -> Heard:
    """One ticket, streamed."""
    return with_client(engine, lambda client: listen(client, ticket_body(ticket, **changes)))


def raw(engine: EngineHandle, data: bytes) -> bytes:
    """Send bytes and read until the server closes."""
    with socket.create_connection(("127.0.0.1", engine.port), timeout=10) as connection:
        connection.sendall(data)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def post(path: str, body: dict[str, Any], *headers: str) -> bytes:
    data = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "host: engine", f"content-length: {len(data)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def start(engine: EngineHandle, body: dict[str, Any]) -> socket.socket:
    """A request under way on a connection of its own."""
    connection = socket.create_connection(("127.0.0.1", engine.port), timeout=10)
    connection.sendall(post("/v1/chat/completions", body))
    return connection


def is_running(engine: EngineHandle, count: int = 1) -> Callable[[], bool]:
    return lambda: engine.state()["running"] == count
