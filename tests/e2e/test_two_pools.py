"""A batch on two pools: a shared one, and one of its own with another model."""

from collections import Counter

import pytest

from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.process import EngineProcess
from tests.support.night import Night

pytestmark = pytest.mark.long

DEEP = """
[[pool]]
name = "deep"
base_url = "{base_url}"
model = "large-model"
engine = "vllm"
capacity = {{ slots = 8, tokens = 64000 }}
protected = {{ batch = {{ slots = 8, tokens = 64000 }} }}
"""
STEADY = EngineProfile(step_base_seconds=0.02)  # a ticket takes long enough for its pool to be full


def test_a_batch_uses_its_pools_and_its_results_carry_the_model(night: Night) -> None:
    with EngineProcess(STEADY) as shared, EngineProcess(STEADY, "--model", "large-model") as deep:
        configure(night, shared, deep)
        tickets = night.tickets(f"Where is parcel {number}?" for number in range(120))
        shown = night.submit_and_wait()
        rows = night.results()

    assert shown["request_counts"]["succeeded"] == len(tickets)
    assert {ticket: row["label"] for ticket, row in rows.items()} == night.expected(tickets)
    models = Counter(row["model"] for row in rows.values())
    assert set(models) == {"test-model", "large-model"}, models
    assert [pool["name"] for pool in shown["pools"]] == ["gpu", "deep"]


def test_a_batch_can_be_told_its_pools(night: Night) -> None:
    with EngineProcess(STEADY) as shared, EngineProcess(STEADY, "--model", "large-model") as deep:
        configure(night, shared, deep)
        night.tickets(f"Where is parcel {number}?" for number in range(40))
        shown = night.submit_and_wait("--pool", "deep")
        rows = night.results()

    assert [pool["name"] for pool in shown["pools"]] == ["deep"]
    assert {row["model"] for row in rows.values()} == {"large-model"}


def configure(night: Night, shared: EngineProcess, deep: EngineProcess) -> None:
    night.configure(shared.base_url, slots=4, chat=2)
    with (night.folder / "tickets-batch.toml").open("a", encoding="utf-8") as file:
        file.write(DEEP.format(base_url=deep.base_url))
