"""What an endpoint says of itself without being asked to work: the models it lists, and the time by its clock."""

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2

from scheduler.signals.fetch import in_words, plain_client
from tickets_batch.errors import UserError
from tickets_batch.settings import Pool

LIST_BYTES = 1024 * 1024


class EndpointUnavailable(UserError):
    """The endpoint does not answer at all."""


@dataclass(frozen=True, slots=True)
class Served:
    """`models` are those that it lists, None where it shows no list; `ahead_seconds` is how far its clock is ahead of
    this machine's, to the second, None where it tells no time.
    """

    status: int
    models: tuple[str, ...] | None
    ahead_seconds: float | None


async def served(pool: Pool, timeout_seconds: float) -> Served:
    """Ask once for the list of models. Raises EndpointUnavailable; SettingsError when the pool's key is missing."""
    url = pool.base_url.rstrip("/") + "/models"
    headers = {"Authorization": f"Bearer {pool.api_key.reveal()}"} if pool.api_key else {}
    asked = datetime.now(UTC)
    body = bytearray()
    try:
        async with (
            asyncio.timeout(timeout_seconds),
            plain_client(url, timeout_seconds) as client,
            client.stream("GET", url, headers=headers) as response,
        ):
            async for received in response.aiter_bytes():
                body += received
                if len(body) > LIST_BYTES:
                    break
            date, status = response.headers.get("date"), response.status_code
    except (TimeoutError, httpx2.TimeoutException) as error:
        raise EndpointUnavailable(f"{url} does not answer within {timeout_seconds:g} s: check base_url") from error
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise EndpointUnavailable(f"{url} cannot be reached ({in_words(error)}): check base_url") from error
    return Served(status, _models(bytes(body)) if status == httpx2.codes.OK else None, _ahead(date, asked))


def _models(body: bytes) -> tuple[str, ...] | None:
    try:
        return tuple(str(model["id"]) for model in json.loads(body)["data"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _ahead(date: str | None, asked: datetime) -> float | None:
    try:
        told = parsedate_to_datetime(date or "")
    except (ValueError, OverflowError):  # of a year without end
        return None
    middle = asked + (datetime.now(UTC) - asked) / 2
    return (told.replace(tzinfo=told.tzinfo or UTC) - middle).total_seconds() + 0.5  # it tells whole seconds
