"""The table of one shape and kind of ticket, and the figures by which ours is judged."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scheduler.simulation.site import Site
from tests.simulation.frontier import Frontier, Point
from tests.simulation.nights import CONSTANT, play_all
from tests.simulation.rows import (
    ALONE,
    CAP,
    CLAIRVOYANT,
    ENGINE_PRIORITY,
    NO_GATE,
    OURS,
    OURS_PRIORITY,
    Night,
    Result,
    caps,
    mean,
    spares,
)

GROUPS = ("none", "caps", "priority", "clairvoyant", "ours", "ours-priority")


@dataclass(frozen=True, slots=True)
class Table:
    """All rows of one shape and kind, each the mean of its seeds."""

    site: Site
    shape: str
    kind: str
    rows: Mapping[str, Result]

    @property
    def frontier(self) -> Frontier:
        """Chat alone and the static caps."""
        return _frontier(self.rows, (ALONE, CAP))

    @property
    def bound(self) -> Frontier:
        """Chat alone and the clairvoyant."""
        return _frontier(self.rows, (ALONE, CLAIRVOYANT))

    @property
    def floor(self) -> Result:
        """The static cap at batch's protected minimum."""
        return self.rows[f"{CAP}{self.site.capacity.floor.slots}"]

    def against_caps(self, row: str) -> float:
        """Tickets/s over those of the static caps at the same chat p99; below chat alone, over the least cap's."""
        return self._ratio(row, self.frontier, f"{CAP}{min(caps(self.site))}")

    def against_bound(self, row: str) -> float:
        """Tickets/s over those of the clairvoyant at the same chat p99."""
        return self._ratio(row, self.bound, f"{CLAIRVOYANT}{max(spares(self.site))}")

    def p99_against_floor(self, row: str) -> float:
        """The chat's p99 over its p99 beside a static cap at the floor."""
        return self.rows[row].ttft_p99 / self.floor.ttft_p99

    def is_below_alone(self, row: str) -> bool:
        """Whether the chat had it better than every peer's, chat alone included: then no ratio at equal p99 exists."""
        return self.frontier.at(self.rows[row].ttft_p99) is None

    def is_dominated(self, row: str) -> bool:
        """Whether the engine's priority alone gives both a faster chat and more tickets."""
        result, alone = self.rows[row], self.rows[ENGINE_PRIORITY]
        return result.ttft_p99 > alone.ttft_p99 and result.tickets_per_second < alone.tickets_per_second

    def _ratio(self, row: str, frontier: Frontier, least: str) -> float:
        result = self.rows[row]
        at = frontier.at(result.ttft_p99)
        return result.tickets_per_second / (at or self.rows[least].tickets_per_second)


def row_names(site: Site, groups: Iterable[str]) -> list[str]:
    """The rows of some groups, in the order of the table; chat alone is always there."""
    rows = {
        "none": [NO_GATE],
        "caps": [f"{CAP}{number}" for number in caps(site)],
        "priority": [ENGINE_PRIORITY],
        "clairvoyant": [f"{CLAIRVOYANT}{spare}" for spare in spares(site)],
        "ours": [OURS],
        "ours-priority": [OURS_PRIORITY],
    }
    wanted = list(groups)
    return [ALONE, *(row for group in rows if group in wanted for row in rows[group])]


def make_tables(
    site: Site,
    shapes: Iterable[str],
    kinds: Iterable[str],
    groups: Iterable[str],
    *,
    seeds: int,
    seconds: float,
    constants: Iterable[CONSTANT] = (),
) -> list[Table]:
    """Play every night that the tables need."""
    rows, numbers = row_names(site, groups), range(1, seeds + 1)
    pairs = [(shape, kind) for kind in kinds for shape in shapes]
    played = play_all(
        [Night(site, shape, kind, seed, seconds, row) for shape, kind in pairs for row in rows for seed in numbers],
        constants,
    )
    return [
        Table(
            site,
            shape,
            kind,
            {row: mean(played[Night(site, shape, kind, seed, seconds, row)] for seed in numbers) for row in rows},
        )
        for shape, kind in pairs
    ]


def render(table: Table) -> str:
    """The rows, and under them what they are judged by."""
    lines = [
        f"{table.site.name}, {table.shape}, {table.kind} tickets",
        f"{'':26}{'TTFT p50':>9}{'p95':>8}{'p99':>8}{'tickets/s':>11}{'prompt/s':>10}{'wasted':>8}"
        f"{'refused':>9}{'over floor':>11}{'withdrawn':>11}{'back p99':>10}",
    ]
    for name, r in table.rows.items():
        lines.append(
            f"{name:26}{r.ttft_p50:9.3f}{r.ttft_p95:8.3f}{r.ttft_p99:8.3f}{r.tickets_per_second:11.3f}"
            f"{r.prompt_tokens_per_second:10.0f}{r.wasted_share:8.3f}{r.refused:9.1f}{r.refused_above_floor:11.1f}"
            f"{r.withdrawn:11.1f}{r.pull_back_p99:10.3f}"
        )
    lines += [_judge(table, row) for row in (OURS, OURS_PRIORITY) if row in table.rows and len(table.rows) > 3]
    return "\n".join(lines)


def _judge(table: Table, row: str) -> str:
    said = []
    if f"{CAP}{table.site.capacity.floor.slots}" in table.rows:
        note = " (below chat alone: against cap 1)" if table.is_below_alone(row) else ""
        said.append(f"{table.against_caps(row):.2f} of the static caps at that p99{note}")
        said.append(f"p99 {table.p99_against_floor(row):.2f} of the floor's")
    if f"{CLAIRVOYANT}{max(spares(table.site))}" in table.rows:
        said.append(f"{table.against_bound(row):.2f} of the clairvoyant")
    if row == OURS_PRIORITY and ENGINE_PRIORITY in table.rows:
        said.append(f"{'' if table.is_dominated(row) else 'not '}dominated by engine priority alone")
    return f"{row}: " + "; ".join(said)


def _frontier(rows: Mapping[str, Result], prefixes: tuple[str, ...]) -> Frontier:
    return Frontier.of(
        Point(result.ttft_p99, result.tickets_per_second) for row, result in rows.items() if row.startswith(prefixes)
    )
