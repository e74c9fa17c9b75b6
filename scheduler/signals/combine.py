"""One reading of the chat from all that the sources say. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.capacity import NOTHING, Amount
from scheduler.signals.load import Load, SourceAge


@dataclass(frozen=True, slots=True)
class Report:
    """What one source says of the chat. One that `is_exact` knows every request: then the arrivals and times to first
    token of one that `is_estimate` do not count.

    `ages` are the lines of this source, none where it only adds to what others see: such a one makes no pool seeing.
    """

    ages: tuple[SourceAge, ...] = ()
    in_flight: Amount = NOTHING
    waiting: int = 0
    oldest_waiting_seconds: float = 0.0
    arrivals: int = 0
    ttfts_seconds: tuple[float, ...] = ()
    is_congested: bool = False
    is_exact: bool = False
    is_estimate: bool = False


def combine(
    reports: Sequence[Report],
    *,
    is_dedicated: bool,
    batch_in_flight: Amount = NOTHING,
    batch_expected_seconds: float = 0.0,
    prefill_rate: float | None = None,
    prefilled_per_second: float = 0.0,
) -> Load:
    """The chat: the larger load, the longer wait, all times to first token.

    Blind is a pool that shares its capacity and has no source that is fresh.
    """
    ages = tuple(age for report in reports for age in report.ages)
    is_known = any(report.is_exact for report in reports)
    counting = [report for report in reports if not (is_known and report.is_estimate)]
    in_flight = NOTHING
    for report in reports:
        in_flight = in_flight.at_least(report.in_flight)
    return Load(
        in_flight=in_flight,
        waiting=max((report.waiting for report in reports), default=0),
        oldest_waiting_seconds=max((report.oldest_waiting_seconds for report in reports), default=0.0),
        arrivals=max((report.arrivals for report in counting), default=0),
        ttfts_seconds=tuple(seconds for report in counting for seconds in report.ttfts_seconds),
        batch_in_flight=batch_in_flight,
        batch_expected_seconds=batch_expected_seconds,
        is_congested=any(report.is_congested for report in reports),
        is_blind=not is_dedicated and not any(age.is_fresh for age in ages),
        prefill_rate=prefill_rate,
        prefilled_per_second=prefilled_per_second,
        sources=ages,
    )
