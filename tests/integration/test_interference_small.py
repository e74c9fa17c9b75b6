"""The chat comes first, in small: ten minutes of virtual time of one seed. The whole table is a benchmark."""

import pytest

from tests.simulation.chats import TABLE_SHAPES
from tests.simulation.rows import ALONE, OURS, Night, play
from tests.simulation.sites import MIDDLE
from tests.simulation.table import Table, render

pytestmark = pytest.mark.long

ROWS = (ALONE, "cap 1", "cap 2", "cap 4", "cap 8", OURS)
# Loose: one seed of ten minutes has few requests in its last hundredth.
RATIO = 1.3
P99_OVER_FLOOR = 1.4


@pytest.mark.parametrize("shape", TABLE_SHAPES)
@pytest.mark.parametrize("kind", ["short", "mix"])
def test_beside_ours_the_chat_is_as_fast_as_beside_the_floor_and_more_tickets_get_done(shape: str, kind: str) -> None:
    rows = {row: play(Night(MIDDLE, shape, kind, 1, 600.0, row)) for row in ROWS}
    table = Table(MIDDLE, shape, kind, rows)
    print(render(table))
    assert table.against_caps(OURS) >= RATIO
    assert table.p99_against_floor(OURS) <= P99_OVER_FLOOR
    assert rows[OURS].refused_above_floor == 0
