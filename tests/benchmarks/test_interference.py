"""What the tickets cost the chat, in virtual time: ours beside chat alone, no gate, static caps, engine priority.

The peers' nights are kept under `.cache` until a source of them changes; `python -m tests.simulation` prints the same
for other traffic, tickets and engines.
"""

import pytest

from scheduler.simulation.site import Site
from scheduler.simulation.tickets import KINDS
from tests.simulation.chats import TABLE_SHAPES
from tests.simulation.nights import play_all
from tests.simulation.rows import OURS, OURS_PRIORITY, Night
from tests.simulation.sites import LARGE, MIDDLE, REPLICAS, SMALL
from tests.simulation.table import GROUPS, Table, make_tables, render

# Tickets/s over those of the static caps at the same chat p99, at least.
RATIOS = {
    "short": {"alternating": 3.0, "burst": 1.5, "trace": 2.2, "random": 3.5},
    "long": {"alternating": 1.8, "burst": 1.8, "trace": 1.6, "random": 2.5},
    "mix": {"alternating": 2.0, "burst": 2.0, "trace": 2.0, "random": 4.0},
}
CLAIRVOYANT_SHARE = 0.9  # of its tickets/s at the same chat p99, short tickets
P99_OVER_FLOOR = 1.1  # of the chat's p99 beside a static cap at the floor
PULL_BACK_SECONDS = 0.25  # from the chat request that needs the room to the engine's having it, p99
OVERLOAD_SHARE = 0.9  # of the tickets/s of a static cap at the floor

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(4 * 3600)]


def make(site: Site, shape: str, kind: str, *, seeds: int, seconds: float) -> Table:
    (table,) = make_tables(site, [shape], [kind], GROUPS, seeds=seeds, seconds=seconds)
    print(f"\n{render(table)}")
    return table


def assert_chat_comes_first(table: Table) -> None:
    for row in (OURS, OURS_PRIORITY):
        assert table.against_caps(row) >= RATIOS[table.kind][table.shape]
        assert table.p99_against_floor(row) <= P99_OVER_FLOOR
        assert table.rows[row].refused_above_floor == 0
        assert table.rows[row].pull_back_p99 < PULL_BACK_SECONDS
        if table.kind == "short":
            assert table.against_bound(row) >= CLAIRVOYANT_SHARE
    assert not table.is_dominated(OURS_PRIORITY)


@pytest.mark.parametrize("shape", TABLE_SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_chat_comes_first_and_the_rest_is_used(shape: str, kind: str) -> None:
    assert_chat_comes_first(make(MIDDLE, shape, kind, seeds=5, seconds=3600))


@pytest.mark.parametrize("site", [REPLICAS, SMALL, LARGE], ids=["replicas", "small", "large"])
@pytest.mark.parametrize("shape", TABLE_SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_on_other_engines_too(site: Site, shape: str, kind: str) -> None:
    assert_chat_comes_first(make(site, shape, kind, seeds=2, seconds=1200))


def test_under_permanent_overload_batch_gets_its_floor() -> None:
    floor = f"cap {MIDDLE.capacity.floor.slots}"
    nights = {row: Night(MIDDLE, "overload", "short", 1, 1200.0, row) for row in (OURS, floor)}
    played = play_all(nights.values())
    ours, least = (played[nights[row]].tickets_per_second for row in (OURS, floor))
    print(f"\npermanent overload: ours {ours:.3f} tickets/s, a static cap at the floor {least:.3f}")
    assert ours >= OVERLOAD_SHARE * least
