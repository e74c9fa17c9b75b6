"""A few plans, each with another kind of fault first: the long run is `python -m tests.chaos --plans 200`."""

import pytest

from tests.chaos.__main__ import run_all
from tests.chaos.plan import plan_of

FEW = (4, 6, 14)  # a worker that stood still comes back; a disk is full; everything is killed at one moment


@pytest.mark.long
@pytest.mark.timeout(300)
def test_nothing_is_lost_in_chaos() -> None:
    complaints = {verdict.plan.seed: verdict.complaints for verdict in run_all(map(plan_of, FEW))}
    assert complaints == dict.fromkeys(FEW, ())
