"""One bounded answer from one address: no proxy, no redirect, no connection kept, a limit on time and size."""

import asyncio
from collections.abc import Mapping
from typing import Self

import httpx2

from tickets_batch.errors import UserError

ANSWER_SECONDS = 2.0
ANSWER_BYTES = 4 * 1024 * 1024


class SignalUnavailable(UserError):
    """A source of what is known of the chat cannot be read now; the message says why."""


class Fetcher:
    """GET from one address. Connections are not kept: a balancer then shows another replica each time."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        self.url = url
        self._client = plain_client(url, ANSWER_SECONDS)
        self._headers = {"Accept": "text/plain;version=0.0.4, */*;q=0.1", **(headers or {})}

    async def get(self, params: Mapping[str, str] | None = None) -> tuple[int, bytes]:
        """Status and body. Raises SignalUnavailable where none comes in time, or one that is too large."""
        body = bytearray()
        try:
            async with (
                asyncio.timeout(ANSWER_SECONDS),
                self._client.stream("GET", self.url, params=params, headers=self._headers) as response,
            ):
                async for received in response.aiter_bytes():
                    body += received
                    if len(body) > ANSWER_BYTES:
                        raise SignalUnavailable(f"{self.url} answers more than {ANSWER_BYTES >> 20} MB")
                return response.status_code, bytes(body)
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise SignalUnavailable(f"{self.url} does not answer within {ANSWER_SECONDS:g} s") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise SignalUnavailable(f"{self.url} cannot be read: {in_words(error)}") from error

    async def page(self, params: Mapping[str, str] | None = None) -> bytes:
        """The body of a success. Raises SignalUnavailable for any other answer too."""
        status, body = await self.get(params)
        if status != httpx2.codes.OK:
            raise SignalUnavailable(f"{self.url} answers {status}")
        return body

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close what is open."""
        await self._client.aclose()


def plain_client(url: str, timeout_seconds: float) -> httpx2.AsyncClient:
    """A client that goes to the address it is given and nowhere else."""
    return httpx2.AsyncClient(
        trust_env=False,
        follow_redirects=False,
        timeout=timeout_seconds,
        limits=httpx2.Limits(max_keepalive_connections=0),
        headers={"Accept-Encoding": "identity"},
        # Loading the certificates costs 90 ms; where nothing is encrypted, nothing is verified.
        verify=httpx2.create_ssl_context(verify=not url.startswith("http:")),
    )


def in_words(error: Exception) -> str:
    """The error in a few words; its name where it has none of its own."""
    return str(error) or type(error).__name__
