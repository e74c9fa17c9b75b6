"""Calls of the model client as tests make them: one spec, one ticket, a client for each."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from jobs.answer import parse_answer
from jobs.outcomes import Attempt
from jobs.prompt import build_messages, response_format
from jobs.spec import ClassificationSpec
from tickets_batch.settings import Pool, Secret
from workers.client import ModelClient

SPEC = ClassificationSpec(labels={"account": "logins", "billing": "charges", "shipping": "parcels"})
LABELS = list(SPEC.labels)
SUBJECT = "Lost"
BODY = "Parcel 4711 was sent to 12 Rosemary Lane, and nobody there has ever heard of me."
TICKET = f"{SUBJECT}\n{BODY}"


@asynccontextmanager
async def client_of(
    base_url: str, *, at_once: int = 8, timeout_seconds: float = 10.0, key: Secret | None = None
) -> AsyncIterator[ModelClient]:
    pool = Pool.model_validate(
        {
            "name": "gpu",
            "base_url": base_url,
            "model": "test-model",
            "api_key": key,
            "capacity": {"slots": 4},
            "request_timeout_seconds": timeout_seconds,
        }
    )
    client = ModelClient(pool, at_once=at_once)
    try:
        yield client
    finally:
        await client.aclose()


def ask(client: ModelClient, body: str = BODY, *, max_output_tokens: int = 32, **options: Any) -> Awaitable[Attempt]:
    messages = build_messages(SPEC, SUBJECT, body)
    parse = partial(parse_answer, SPEC)
    return client.classify(messages, response_format(SPEC), max_output_tokens, parse=parse, **options)


def attempt_at(base_url: str, *, timeout_seconds: float = 10.0) -> Attempt:
    """One call by a client of its own."""

    async def call() -> Attempt:
        async with client_of(base_url, timeout_seconds=timeout_seconds) as client:
            return await ask(client)

    return asyncio.run(call())
