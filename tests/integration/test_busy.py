"""While work is left, the slots that batch may hold are busy: measured at the engine, with tickets of uneven length."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest

from jobs.spec import ClassificationSpec
from jobs.store.database import Database
from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.log import LogRow
from tests.engine.process import EngineProcess
from tests.support.aftermath import aftermath
from tests.support.shift import POOL, SPEC, Shift, at_work, play, with_spec
from tests.support.valkey import ValkeyServer

TICKETS = 240
SLOTS = POOL.most_batch.slots
TASK_SECONDS = 4.0  # far shorter than in production, so that tasks change several times meanwhile
UNEVEN = ("--answer-tokens", "30", "--answer-sigma", "0.5")
LONG_ANSWERS = ClassificationSpec(labels=SPEC.labels, max_output_tokens=200)


@pytest.mark.rare
def test_two_workers_keep_nearly_all_slots_busy_while_work_is_left(database: Database, valkey: ValkeyServer) -> None:
    texts = [f"Where is parcel {number}?" for number in range(TICKETS)]

    async def scene(engine: EngineProcess) -> None:
        async with (
            at_work(database, valkey, engine.base_url, texts, **with_spec(LONG_ANSWERS)) as first,
            at_work(database, valkey, engine.base_url, [], worker="worker-2", batch_id=first.batch_id) as second,
        ):
            await asyncio.gather(tasks(first), tasks(second))
            assert aftermath(database, first.batch_id).states == {"succeeded": TICKETS}

    with EngineProcess(EngineProfile(), *UNEVEN) as engine:
        play(lambda: scene(engine))
        rows = engine.log()
    assert len(rows) == TICKETS
    busy = busy_share(rows, SLOTS)
    print(f"{database.dialect}: {busy:.1%} of {SLOTS} slots were busy while work was left")
    assert busy >= 0.95


async def tasks(shift: Shift) -> None:
    """One task after the other, as a worker takes them from its queue."""
    while not shift.batch().state.is_final:
        await shift.drive(seconds=TASK_SECONDS)


def busy_share(rows: Sequence[LogRow], slots: int) -> float:
    """The share of slot-time that requests took at the engine, from the first moment at which all slots were taken to
    the one from which on fewer tickets than slots were left."""
    changes = sorted(
        [(row.arrived_at, 1) for row in rows] + [(row.ended_at, -1) for row in rows if row.ended_at is not None]
    )
    end = sorted(row.ended_at for row in rows if row.ended_at is not None)[len(rows) - slots]
    begin = None
    in_flight = 0
    used = 0.0
    for (at, change), (until, _) in pairwise(changes):
        in_flight += change
        assert in_flight <= slots
        if begin is None and in_flight == slots:
            begin = at
        if begin is not None and at < end:
            used += in_flight * (min(until, end) - at)
    assert begin is not None, "the slots were never all taken"
    return used / (slots * (end - begin))
