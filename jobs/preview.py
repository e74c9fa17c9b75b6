"""What a submit would do, before it does it: how many tickets, how many tokens, how long."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from jobs.intake.source import Source
from jobs.store.answered import Answered
from jobs.ticket import Rejection, Standing, Ticket

KEPT_REJECTIONS = 20
LOOKED_UP = 2_000  # tickets at a time whose answers are looked up


@dataclass(frozen=True, slots=True)
class Spread:
    """The tokens that a ticket asks for, its whole prompt and the output cap, over all tickets; zeros without any."""

    total: int
    p50: int
    p95: int
    largest: int


@dataclass(frozen=True, slots=True)
class Preview:
    """What would be submitted: of the `tickets` of the source those that are `to_do`.

    `reused` are new to the batch too, and have their answers from an earlier one. `already` are in the batch, `changed`
    of these with another text. `tokens` and `seconds` (None where no speed is known) are of what is to do. `rejections`
    are the first of the `rejected` rows; `outside_day` rows belong to other days.
    """

    tickets: int
    to_do: int
    reused: int
    already: int
    changed: int
    rejected: int
    rejections: tuple[Rejection, ...]
    outside_day: int
    tokens: Spread
    seconds: float | None
    notes: tuple[str, ...]


def preview(
    source: Source,
    *,
    tokens_of: Callable[[str], int],
    shared_tokens: int,
    output_tokens: int,
    slots: int,
    slot_tokens_per_second: float | None,
    standing: Callable[[Ticket], Standing] = lambda ticket: Standing.NEW,
    answered: Answered | None = None,
    takes_changed: bool = False,
) -> Preview:
    """Read `source` to its end and add up what it would ask of the model.

    To do is what is new by its `standing` to the batch and not `answered` by an earlier one, and, where the submit
    `takes_changed`, what has changed.

    A ticket asks for `shared_tokens` (the part of the prompt that all have), its own text by `tokens_of`, and
    `output_tokens`. `slot_tokens_per_second` is what one slot was measured to do of such tokens: the tickets take their
    total divided over `slots`, and never less than the largest one alone. Ids are remembered by their hash, about
    70 bytes each. Raises UserError where the source breaks off.
    """
    asks = _Asks(answered)
    standings: Counter[Standing] = Counter()
    ids: set[int] = set()
    rejected = 0
    rejections: list[Rejection] = []
    for row in source:
        usable = _once(row, ids)
        if isinstance(usable, Rejection):
            rejected += 1
            rejections += [usable] if len(rejections) < KEPT_REJECTIONS else []
            continue
        stands = standing(usable)
        standings[stands] += 1
        if stands is Standing.NEW or (takes_changed and stands is Standing.CHANGED):
            size = shared_tokens + tokens_of(f"{usable.subject}\n{usable.body}") + output_tokens
            asks.add(usable, size, is_new=stands is Standing.NEW)
    asks.look_up()
    tokens = _spread(asks.sizes)
    seconds = None
    if slot_tokens_per_second is not None:
        seconds = max(tokens.total / max(1, slots), tokens.largest) / slot_tokens_per_second
    return Preview(
        tickets=standings.total(),
        to_do=asks.sizes.total(),
        reused=asks.reused,
        already=standings.total() - standings[Standing.NEW],
        changed=standings[Standing.CHANGED],
        rejected=rejected,
        rejections=tuple(rejections),
        outside_day=source.outside_day,
        tokens=tokens,
        seconds=seconds,
        notes=source.notes,
    )


class _Asks:
    """What is asked of the model, counted by size; what is new waits, by its key alone, to be looked up with others."""

    def __init__(self, answered: Answered | None) -> None:
        self.sizes: Counter[int] = Counter()
        self.reused = 0
        self._answered = answered
        self._waiting: list[tuple[str, int]] = []

    def add(self, ticket: Ticket, size: int, *, is_new: bool) -> None:
        """One more ticket; a changed one is never answered from another batch."""
        if self._answered is None or not is_new:
            self.sizes[size] += 1
            return
        self._waiting.append((self._answered.key_of(ticket), size))
        if len(self._waiting) == LOOKED_UP:
            self.look_up()

    def look_up(self) -> None:
        """Sort those that wait into reused and asked."""
        if self._answered is None or not self._waiting:
            return
        found = self._answered.among({key for key, _ in self._waiting})
        asked = [size for key, size in self._waiting if key not in found]
        self.sizes.update(asked)
        self.reused += len(self._waiting) - len(asked)
        self._waiting.clear()


def _once(row: Ticket | Rejection, ids: set[int]) -> Ticket | Rejection:
    """The row, or its rejection when its id was there before."""
    if isinstance(row, Rejection):
        return row
    known = len(ids)
    ids.add(hash(row.custom_id))
    return row if len(ids) > known else Rejection(row.line, "duplicate id", row.custom_id)


def _spread(sizes: Counter[int]) -> Spread:
    total = sum(size * count for size, count in sizes.items())
    return Spread(total, _quantile(sizes, 0.5), _quantile(sizes, 0.95), max(sizes, default=0))


def _quantile(sizes: Counter[int], share: float) -> int:
    """The smallest size that at least `share` of the tickets do not exceed."""
    reached = 0
    for size in sorted(sizes):
        reached += sizes[size]
        if reached >= share * sizes.total():
            return size
    return 0
