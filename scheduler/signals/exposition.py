"""A page of metrics in Prometheus' text form: the samples asked for, added up over engines and models."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from io import StringIO
from math import isnan
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

MOST = 1e12  # requests, seconds since 1970, or seconds waited by all; what is more no engine has counted

_PARTS = ("_bucket", "_sum", "_count")

Labels = Mapping[str, str]
Samples = Mapping[str, list[tuple[Labels, float]]]


class UnreadablePage(ValueError):
    """The page is not in the text form, or a number in it cannot be one of requests or seconds."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of what took at most so many seconds, by that bound, with all seconds and the count of all."""

    buckets: tuple[tuple[float, float], ...]
    seconds: float
    count: float

    def since(self, before: Self) -> Self | None:
        """What came after `before`; None where a counter went back or the bounds are others: it began anew."""
        bounds = [bound for bound, _ in self.buckets]
        if bounds != [bound for bound, _ in before.buckets]:
            return None
        buckets = tuple(
            (bound, now - then) for (bound, now), (_, then) in zip(self.buckets, before.buckets, strict=True)
        )
        seconds, count = self.seconds - before.seconds, self.count - before.count
        if count < 0 or seconds < 0 or any(difference < 0 for _, difference in buckets):
            return None
        return type(self)(buckets, seconds, count)

    def above(self, seconds: float) -> float:
        """How many certainly took more than `seconds`: those over the first bound that is not under it."""
        within = next((count for bound, count in self.buckets if bound >= seconds), self.count)
        return max(0.0, self.count - within)


@dataclass(frozen=True, slots=True)
class Page:
    """The samples of one page. A metric that is not there is None, never zero."""

    samples: Samples = field(default_factory=dict)

    @classmethod
    def parse(cls, body: bytes, names: Collection[str]) -> Self:
        """Read the metrics `names`, histograms by their family's name. Raises UnreadablePage."""
        wanted = {name + part for name in names for part in ("", *_PARTS)}
        samples: dict[str, list[tuple[Labels, float]]] = defaultdict(list)
        try:
            # The parser takes 30 ms for a whole page of vLLM's: the loop it runs on has better to do.
            text = "".join(_lines_of(StringIO(body.decode("utf-8")), wanted))
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    samples[sample.name].append((sample.labels, _sound(sample.name, float(sample.value))))
        except UnreadablePage:
            raise
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise UnreadablePage(f"not a page of metrics: {str(error)[:100]!r}") from error
        return cls(dict(samples))

    def total(self, name: str, kept: Labels | None = None) -> float | None:
        """The sum over all samples; those with another value than a `kept` label has are left out."""
        values = [
            value
            for labels, value in self.samples.get(name, ())
            if all(labels.get(label, only) == only for label, only in (kept or {}).items())
        ]
        return sum(values) if values else None

    def largest(self, name: str) -> float | None:
        """The largest of all samples."""
        return max((value for _, value in self.samples.get(name, ())), default=None)

    def histogram(self, name: str) -> Histogram | None:
        """The histogram added up over all labels but the bound's."""
        seconds, count = self.total(f"{name}_sum"), self.total(f"{name}_count")
        if seconds is None or count is None:
            return None
        buckets: dict[float, float] = defaultdict(float)
        for labels, value in self.samples.get(f"{name}_bucket", ()):
            buckets[_bound(labels)] += value
        return Histogram(tuple(sorted(buckets.items())), seconds, count)


def _lines_of(lines: Iterable[str], wanted: Collection[str]) -> Iterator[str]:
    starts = tuple(wanted)
    for line in lines:
        if line.lstrip().startswith(starts) and line.split("{", 1)[0].split(None, 1)[0] in wanted:
            yield line


def _sound(name: str, value: float) -> float:
    if not 0 <= value <= MOST:  # nor what is no number
        raise UnreadablePage(f"{name} is {value}")
    return value


def _bound(labels: Labels) -> float:
    try:
        bound = float(labels["le"])
    except (KeyError, ValueError) as error:
        raise UnreadablePage("a bucket without its bound") from error
    if isnan(bound):
        raise UnreadablePage("a bucket whose bound is no number")
    return bound
