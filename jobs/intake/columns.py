"""Which columns of a source hold the parts of a ticket."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jobs.intake.formats import FORMATS
from jobs.intake.text import shown
from tickets_batch.errors import UserError
from tickets_batch.settings import Source

SHOWN_COLUMNS = 30
PARTS = ("id", "subject", "body", "created_at", "updated_at", "priority", "urgent")
USUAL_NAMES = {
    "id": ("ticket id", "ticket_id", "key", "issue key", "number", "ticket", "custom_id"),
    "subject": ("title", "summary"),
    "body": ("description", "text", "message", "content", "comment", "description_text"),
    "created_at": ("created", "created at", "created time", "date", "timestamp", "opened at"),
    "updated_at": ("updated", "updated at", "last update time", "modified", "last modified"),
    "priority": ("urgency",),
    "urgent": ("priority", "urgency"),
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The names under which each part is looked for, in order, and the parts that a source must have."""

    names: Mapping[str, tuple[str, ...]]
    required: frozenset[str]
    product: str | None = None  # whose export it should be

    @classmethod
    def of(cls, source: Source, *, needs_created_at: bool) -> "Wanted":
        """What the settings ask for: what they name must be there, a subject that they do not name may be missing.

        A format knows its own names, over which those of the settings stand; its exports need not hold any body.
        """
        columns = source.columns
        known = FORMATS[source.format] if source.format else None
        given = columns.model_fields_set
        names = dict(known.names) if known else {}
        names |= {part: (name,) for part, name in columns if name is not None and (known is None or part in given)}
        named = given & {"subject", "body", "updated_at", "priority"} & names.keys()
        required = named | ({"id", "subject"} if known else {"id", "body"})
        if source.urgent is not None:
            names.pop("priority", None)
            names["urgent"] = (source.urgent.column,)
            required.add("urgent")
        return cls(names, frozenset(required | {"created_at"} if needs_created_at else required), source.format)

    def refuse_missing(self, where: str, present: Iterable[str], found: Sequence[str]) -> None:
        """Raise UserError, one line, when a required part is not `present`; it names the columns `found`."""
        missing = [part for part in PARTS if part in self.required and part not in set(present)]
        if not missing:
            return
        said = "; ".join(_missing(part, self.names[part][0], found) for part in missing)
        names = ", ".join(shown(name) for name in found[:SHOWN_COLUMNS])
        more = f" and {len(found) - SHOWN_COLUMNS} more" if len(found) > SHOWN_COLUMNS else ""
        way_out = f"set [source] {'urgent' if missing == ['urgent'] else 'columns'}"
        if self.product is not None:
            way_out = f"is it an export of {self.product}? {way_out}"
        if "created_at" in missing:
            way_out += ", or take every row whatever its date with --all"
        raise UserError(f"{where}: {said}; its columns are: {names or 'none'}{more}; {way_out}")

    def note_missing(self, present: Iterable[str], found: Sequence[str]) -> tuple[str, ...]:
        """A line for a person where no subject is `present` among the columns `found`: nobody has asked for one."""
        if "subject" not in self.names or "subject" in set(present):
            return ()
        missing = _missing("subject", self.names["subject"][0], found)
        return (f"{missing}: the bodies alone are classified; if it has another name, set [source] columns",)


@dataclass(frozen=True, slots=True)
class Positions:
    """Where each part stands in a row of cells; one that is found under several names, or a repeated one, has several.

    `repeated` are the names that the header repeats, with how often.
    """

    by_part: Mapping[str, tuple[int, ...]]
    width: int
    repeated: Mapping[str, int]

    @property
    def reach(self) -> int:
        """How many cells a row needs to hold the first place of every part."""
        return max(places[0] for places in self.by_part.values()) + 1


def positions(wanted: Wanted, header: Sequence[str]) -> Positions:
    """The places of the wanted columns: by exact name, else whatever its case and the white space around it."""
    by_part: dict[str, tuple[int, ...]] = {}
    repeated: dict[str, int] = {}
    for part, names in wanted.names.items():
        for name in names:
            places = _places(name, header)
            if len(places) > 1:
                repeated[name] = len(places)
            if places:
                by_part[part] = (*by_part.get(part, ()), *places)
    return Positions(by_part, len(header), repeated)


def _places(name: str, header: Sequence[str]) -> tuple[int, ...]:
    exact = tuple(place for place, cell in enumerate(header) if cell == name)
    return exact or tuple(place for place, cell in enumerate(header) if _folded(cell) == _folded(name))


def _missing(part: str, name: str, found: Sequence[str]) -> str:
    folded = {_folded(cell): cell for cell in found}
    close = difflib.get_close_matches(_folded(name), folded, n=1, cutoff=0.6)
    usual = [candidate for candidate in USUAL_NAMES[part] if candidate in folded]
    nearest = (close + usual)[:1]
    hint = f' (nearest: "{shown(folded[nearest[0]])}")' if nearest else ""
    key = "urgent.column" if part == "urgent" else f"columns.{part}"
    return f'no column "{name}" for {key}{hint}'


def _folded(name: str) -> str:
    return name.strip().casefold()
