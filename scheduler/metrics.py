"""What the scheduler shows Prometheus of each open batch."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Gauge, start_http_server

from jobs.store.forecasts import StoredForecast
from tickets_batch.errors import UserError

PACES = ("guaranteed", "on_track", "at_risk", "will_miss")


class Metrics:
    """The metrics of one scheduler, in a registry of their own; a batch that has ended leaves them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._pace = self._gauge("pace", "1 for the pace at which the batch is, 0 for the others.", "pace")
        self._tokens_left = self._gauge("tokens_left", "Work left, in tokens.")
        self._achieved = self._gauge("tokens_per_second", "The rate of late.")
        self._needed = self._gauge("needed_tokens_per_second", "The rate that ends at the deadline.")
        self._done_at = self._gauge("done_timestamp_seconds", "When it will be done: p50 and p90.", "quantile")
        self._shown: set[str] = set()

    def show(self, forecasts: Iterable[StoredForecast]) -> None:
        """These are the newest forecasts of all open batches."""
        found = {forecast.batch_id: forecast for forecast in forecasts}
        for gauge in (self._pace, self._tokens_left, self._achieved, self._needed, self._done_at):
            for gone in self._shown - found.keys():
                gauge.remove_by_labels({"batch": gone})
        self._shown = set(found)
        for forecast in found.values():
            self._show(forecast)

    def _show(self, forecast: StoredForecast) -> None:
        batch = forecast.batch_id
        for pace in PACES:
            self._pace.labels(batch, pace).set(pace == forecast.pace)
        self._tokens_left.labels(batch).set(forecast.tokens_left)
        for gauge, rate in ((self._achieved, forecast.achieved_rate), (self._needed, forecast.needed_rate)):
            gauge.labels(batch).set(float("nan") if rate is None else rate)
        for quantile, at in (("0.5", forecast.p50_at), ("0.9", forecast.p90_at)):
            self._done_at.labels(batch, quantile).set(float("nan") if at is None else at.timestamp())

    def _gauge(self, name: str, words: str, *labels: str) -> Gauge:
        return Gauge(f"tickets_batch_batch_{name}", words, ["batch", *labels], registry=self.registry)


@contextmanager
def served(metrics: Metrics, listen: str | None) -> Iterator[None]:
    """Serve them at HOST:PORT as `/metrics`; nowhere where there is none. Raises UserError when it is taken."""
    if listen is None:
        yield
        return
    host, _, port = listen.rpartition(":")
    try:
        server, thread = start_http_server(int(port), host.strip("[]"), metrics.registry)
    except (OSError, OverflowError) as error:
        raise UserError(f"scheduler.metrics_listen: cannot listen on {listen}: {error}") from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
