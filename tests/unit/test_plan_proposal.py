"""The lines that `plan --measure` proposes: the real loader takes them, and each number has its reason."""

from pathlib import Path

import pytest

from scheduler.capacity import Amount, PoolCapacity
from scheduler.curve import Curve, Step
from scheduler.pools import capacity_of
from scheduler.proposal import Proposal, propose
from tickets_batch.settings import load

SHARED = PoolCapacity(Amount(20, 60_000), Amount(8, 24_000), Amount(2, 6_000))
OWN = PoolCapacity(Amount(20, 60_000), Amount(), Amount(20, 60_000))
POOL = """
[[pool]]
name = "gpu"
base_url = "http://127.0.0.1:8000/v1"
model = "test-model"
"""


def step(in_flight: int, tickets_per_second: float, probe_p95: float | None) -> Step:
    return Step(
        in_flight, 10.0, 100, tickets_per_second, 0.0, 0.0, 1.0, 1.0, probe_ttft_seconds_p95=probe_p95, probes=12
    )


def curve(*steps: Step, largest_tokens: int = 900) -> Curve:
    return Curve(steps, 460, 40, 500, largest_tokens, "a test")


RISING = (step(1, 1.0, 0.1), step(8, 7.0, 0.3), step(16, 10.0, 0.6), step(32, 10.5, 2.0))


@pytest.mark.parametrize("configured", [SHARED, OWN], ids=["shared", "own"])
@pytest.mark.parametrize("target", [0.05, 0.2, 0.4, 1.0, 5.0])
@pytest.mark.parametrize("peak", [None, 0, 5, 90])
def test_the_lines_are_settings(
    configured: PoolCapacity, target: float, peak: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TICKETS_BATCH_CONFIG", raising=False)
    proposal = propose(curve(*RISING), configured, target, peak)
    file = tmp_path / "tickets-batch.toml"
    file.write_text(POOL + proposal.as_toml(), encoding="utf-8")
    assert capacity_of(load(file).pool[0]) == proposal.capacity
    assert proposal.capacity.is_dedicated == configured.is_dedicated


def shared(*steps: Step, target: float = 0.8, peak: int | None = None, largest_tokens: int = 900) -> Proposal:
    return propose(curve(*steps, largest_tokens=largest_tokens), SHARED, target, peak)


def test_the_slots_are_those_of_the_knee() -> None:
    proposal = shared(*RISING)
    assert proposal.capacity.total.slots == 16
    assert "knee" in proposal.reasons[0]


def test_they_are_fewer_where_the_chat_would_be_late() -> None:
    proposal = shared(*RISING, target=0.4)
    assert proposal.capacity.total.slots == 8
    assert "longer than 0.4 s" in proposal.reasons[0]


def test_a_pool_of_batchs_own_does_not_ask_for_the_chat() -> None:
    assert propose(curve(*RISING), OWN, 0.4).capacity.total.slots == 16


def test_where_chat_is_always_late_it_says_so() -> None:
    proposal = shared(*RISING, target=0.05)
    assert proposal.capacity.total.slots == 2
    assert "at no number in flight" in proposal.reasons[0]


def test_what_chat_was_seen_to_hold_is_its_own_and_one_more() -> None:
    assert shared(*RISING, peak=4).capacity.protected_interactive.slots == 5
    assert shared(*RISING, peak=90).capacity.protected_interactive.slots == 16 - 2


def test_without_that_it_is_assumed() -> None:
    proposal = shared(*RISING)
    assert proposal.capacity.protected_interactive.slots == 6
    assert any("assumed: nothing is stored" in reason for reason in proposal.reasons)


def test_tokens_are_as_configured_or_what_tickets_ask_for() -> None:
    assert shared(*RISING).capacity.total.tokens == 16 * 3_000
    long = shared(*RISING, largest_tokens=5_000)
    assert long.capacity.total.tokens == 16 * 5_000
    assert "measured" in long.reasons[-1]
