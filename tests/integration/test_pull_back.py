"""Batch gets out of the way at once: a chat request that needs the room has it at the engine in a moment.

How long exactly, `tests/benchmarks/test_pull_back.py` measures.
"""

import asyncio

import pytest

from jobs.spec import ClassificationSpec
from jobs.store.database import Database
from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.process import EngineProcess
from tests.support.pulling_back import BODY, FULL, OUTPUT_TOKENS, PullBack, pull_back
from tests.support.shift import SPEC, at_work, play, with_spec
from tests.support.valkey import ValkeyServer
from workers import gate


def test_the_engine_is_free_in_a_moment_by_the_announcement_alone(
    database: Database, valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "RENEW_SECONDS", 60.0)  # a renewal would tell too, but not at once
    spec = with_spec(ClassificationSpec(labels=SPEC.labels, max_output_tokens=OUTPUT_TOKENS))
    trials: list[PullBack] = []

    async def scene() -> None:
        bodies = [f"{BODY} {number}" for number in range(200)]
        async with at_work(database, valkey, engine.base_url, bodies, permit_lease_seconds=300, **spec) as shift:
            driving = asyncio.create_task(shift.drive(seconds=60))
            for _ in range(3):
                trials.append(await pull_back(shift, engine))
            await shift.executor.stop(grace_seconds=0.0)
            await driving
            assert shift.batch().succeeded == 0

    with EngineProcess(EngineProfile(), "--answer-tokens", str(OUTPUT_TOKENS)) as engine:
        play(scene)
    assert [trial.withdrawn for trial in trials] == [FULL - 1] * 3
    assert max(trial.seconds for trial in trials) < 1.0
