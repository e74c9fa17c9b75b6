"""Of a ticket that a source holds several times, the version that was changed last."""

import math
from collections.abc import Iterator
from zoneinfo import ZoneInfo

from jobs.intake.dates import WrongDate, instant_of
from jobs.intake.reading import Record
from jobs.intake.rows import Rows
from jobs.ticket import Rejection


class LatestRows:
    """The records of `rows`, each id once: the one with the latest `updated_at`, of equal ones the last.

    Reads the source twice, and keeps about 300 bytes for each id meanwhile.
    """

    def __init__(self, rows: Rows, zone: ZoneInfo) -> None:
        self._rows = rows
        self._zone = zone
        self._earlier = 0
        self.kind = rows.kind

    @property
    def notes(self) -> tuple[str, ...]:
        """Those of the rows, and how many versions were left out."""
        if not self._earlier:
            return self._rows.notes
        return (*self._rows.notes, f"earlier versions of a ticket that comes again, left out: {self._earlier:,}")

    def __iter__(self) -> Iterator[Record | Rejection]:
        newest: dict[str, tuple[float, int]] = {}
        for place, record in enumerate(self._rows):
            if isinstance(record, Record) and (key := _key(record)):
                newest[key] = max(newest.get(key, (-math.inf, place)), (self._changed_at(record), place))
        self._earlier = 0
        for place, record in enumerate(self._rows):
            if isinstance(record, Rejection) or not (key := _key(record)) or newest[key][1] == place:
                yield record
            else:
                self._earlier += 1

    def _changed_at(self, record: Record) -> float:
        """Seconds since 1970, minus infinity where it is not known."""
        try:
            return instant_of(record.updated_at, self._zone).timestamp()
        except WrongDate:
            return -math.inf


def _key(record: Record) -> str:
    return "" if record.custom_id is None else str(record.custom_id).strip()
