"""A batch on two pools: a shared one, and one of its own with another model."""

from collections import Counter

import pytest

from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.faults import Fault, Rule
from tests.engine.process import EngineProcess
from tests.support.night import Night
from tests.support.wait import wait_until

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


def test_a_batch_that_gets_nowhere_holds_up_none_in_another_pool(night: Night) -> None:
    """A model that is being loaded, say, for as long as it likes."""
    with EngineProcess(STEADY) as loading, EngineProcess(STEADY, "--model", "large-model") as deep:
        configure(night, loading, deep)
        loading.set_faults(Rule(Fault("503")))
        night.tickets(f"Where is parcel {number}?" for number in range(200))
        stuck = night.start_submit_and_wait("--pool", "gpu")
        wait_until(lambda: loading.log(), "the first calls", 60)
        tickets = night.tickets((f"Where is parcel {number}?" for number in range(40)), "others.csv", first=1_001)
        shown = night.submit_and_wait("--input", "others.csv", "--pool", "deep")
        assert shown["request_counts"]["succeeded"] == len(tickets)
        assert stuck.code is None
        loading.set_faults()
        assert stuck.wait(120) == 0, stuck.err


def configure(night: Night, shared: EngineProcess, deep: EngineProcess) -> None:
    night.configure(shared.base_url, slots=4, chat=2)
    with (night.folder / "tickets-batch.toml").open("a", encoding="utf-8") as file:
        file.write(DEEP.format(base_url=deep.base_url))
