"""A few plans, each with another kind of fault first: the long run is `python -m tests.chaos --plans 200`."""

import pytest

from tests.chaos.lanes import run_all
from tests.chaos.plan import plan_of

FEW = (6, 7, 13, 51)  # the engine dies; everything dies; a worker that stood still comes back; a disk is full


@pytest.mark.long
@pytest.mark.timeout(300)
def test_nothing_is_lost_in_chaos() -> None:
    complaints = {verdict.plan.seed: verdict.complaints for verdict in run_all(map(plan_of, FEW), lanes=2)}
    assert complaints == dict.fromkeys(FEW, ())
