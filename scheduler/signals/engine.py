"""The engine's own metrics as a source."""

import time
from collections.abc import Callable
from urllib.parse import urlsplit

from scheduler.signals.exposition import UnreadablePage
from scheduler.signals.fetch import Fetcher, SignalUnavailable
from scheduler.signals.names import NAMES
from scheduler.signals.reading import MissingMetrics, Reading, read_page
from scheduler.signals.replicas import Replicas, Scrape
from tickets_batch.settings import EngineSignal, Pool


class EngineMetrics:
    """Scrapes one address. The pool's key goes along only to the origin of its base_url.

    Behind a balancer each scrape may meet another replica: see `Replicas`. Where nothing on the pages tells them apart,
    give one signal with a `url` for each; what they hold adds up. Raises SettingsError when the key is missing.
    """

    def __init__(self, pool: Pool, signal: EngineSignal, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._names = NAMES.get(pool.engine)
        self._engine = pool.engine
        self._replicas = Replicas(pool.ttft_target_seconds)
        self._monotonic = monotonic
        origin = _origin(pool.base_url)
        url = signal.url or origin + (self._names.page if self._names else "/metrics")
        key = pool.api_key if _origin(url) == origin else None
        self._fetcher = Fetcher(url, {"Authorization": f"Bearer {key.reveal()}"} if key else None)

    @property
    def url(self) -> str:
        """Where the metrics are read."""
        return self._fetcher.url

    async def scrape(self) -> Scrape:
        """All engines at this address now. Raises SignalUnavailable."""
        reading = await self.read()
        return self._replicas.take(reading, self._monotonic())

    async def read(self) -> Reading:
        """One page. Raises SignalUnavailable, which names what is missing on it."""
        if self._names is None:
            known = ", ".join(NAMES)
            raise SignalUnavailable(
                f'engine = "{self._engine}" has no metrics that are known: set engine to one of {known}'
            )
        status, body = await self._fetcher.get()
        if status in (401, 403):
            raise SignalUnavailable(
                f"{self.url} answers {status}: the pool's api_key is not good for it, or it needs one"
            )
        if status != 200:
            raise SignalUnavailable(f"{self.url} answers {status}: {self._names.to_do}, or set url")
        try:
            return read_page(self._names, body)
        except MissingMetrics as error:
            raise SignalUnavailable(f"{self.url}: {error}") from error
        except UnreadablePage as error:
            raise SignalUnavailable(f"{self.url}: {error}: set url to the engine's metrics") from error

    async def aclose(self) -> None:
        """Close what is open."""
        await self._fetcher.aclose()


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
