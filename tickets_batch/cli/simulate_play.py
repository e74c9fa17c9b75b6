"""Playing nights, several at a time, while a person at a terminal sees how far they are."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from multiprocessing import get_context
from multiprocessing.sharedctypes import Synchronized

import click

from scheduler.limit import Rule
from scheduler.simulation.night import Night, Outcome, Row
from scheduler.simulation.paced import play_paced
from tickets_batch.cli.simulate_inputs import Engine, Tickets
from tickets_batch.cli.simulate_text import Played
from tickets_batch.errors import UserError
from tickets_batch.words import counted

LOOK_SECONDS = 0.2

_tickets_done: "Synchronized[int]"  # in a process that plays: of all of them together


@dataclass(frozen=True, slots=True)
class Prepared:
    """A night that can be played, in another process too.

    `is_blind`: in a real one nothing would tell of the chat, so nothing of its pool is shared here.
    """

    night: Night
    engine: Engine
    tickets: Tickets
    chat_origin: str
    deadline_at: datetime | None
    is_blind: bool = False

    def played(self, on_row: Callable[[Row], None] | None = None) -> Played:
        outcome, told = play_paced(self.night, on_row)
        outcome = _blind(outcome) if self.is_blind else outcome
        return Played(self.night, outcome, told, self.engine, self.tickets, self.chat_origin, self.deadline_at)


def _blind(outcome: Outcome) -> Outcome:
    """The rule that binds in a blind pool, whatever would have bound in one with nothing to share."""
    rows = tuple(replace(row, rule=Rule.BLIND) for row in outcome.rows)
    return replace(outcome, rows=rows, rule_seconds={Rule.BLIND: sum(outcome.rule_seconds.values())})


def play(nights: Sequence[Prepared]) -> list[Played]:
    """Several at a time where there are several; raises UserError where a night cannot be played.

    Says on stderr how far they are: a bar on a terminal, else one line before they begin.
    """
    processes = min(len(nights), os.cpu_count() or 1)
    if not sys.stderr.isatty():
        what = f"{counted(len(nights), 'night')} of {counted(len(nights[0].night.tickets), 'ticket')}"
        click.echo(f"playing {what} in virtual time ...", err=True)
    try:
        with _bar(sum(len(one.night.tickets) for one in nights)) as advance:
            if processes == 1:
                return [one.played(lambda row: advance(row.tickets)) for one in nights]
            return _play_at_once(nights, processes, advance)
    except ValueError as error:
        raise UserError(f"this night cannot be played: {error}") from error


def _play_at_once(nights: Sequence[Prepared], processes: int, advance: Callable[[int], None]) -> list[Played]:
    context = get_context("spawn")
    done, shown = context.Value("q", 0), 0
    with ProcessPoolExecutor(processes, context, initializer=_count_in, initargs=(done,)) as executor:
        played: list[Future[Played]] = [executor.submit(_played, one) for one in nights]
        while wait(played, LOOK_SECONDS).not_done:
            now = done.value
            advance(now - shown)
            shown = now
        return [one.result() for one in played]


def _count_in(done: "Synchronized[int]") -> None:
    global _tickets_done
    _tickets_done = done


def _played(prepared: Prepared) -> Played:
    def count(row: Row) -> None:
        with _tickets_done.get_lock():
            _tickets_done.value += row.tickets

    return prepared.played(count)


@contextmanager
def _bar(length: int) -> Iterator[Callable[[int], None]]:
    """What moves a bar that a person at a terminal can watch."""
    with click.progressbar(length=length, label="playing", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        yield bar.update
