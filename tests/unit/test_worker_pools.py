"""How long a process leaves a batch alone that none of its pools can serve, and what it asks its pools for."""

from dataclasses import replace
from functools import partial
from typing import cast

import pytest

from jobs.answer import parse_answer
from jobs.outcomes import Symptom
from tests.support.shift import SPEC, pool_settings
from tests.unit.test_health import Clock, attempt
from workers.brief import Brief
from workers.client import ModelClient
from workers.endpoint import WHOLE_IN_A_ROW, Endpoint
from workers.gate import Gate
from workers.health import LONGEST_PROBE_SECONDS, EndpointHealth
from workers.pools import Pools

BRIEF = Brief("batch-1", ("gpu",), SPEC, {}, partial(parse_answer, SPEC), 0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def endpoint(clock: Clock) -> Endpoint:
    settings = pool_settings("http://127.0.0.1:9/v1")
    return Endpoint(settings, cast(ModelClient, None), cast(Gate, None), EndpointHealth(clock))


@pytest.fixture
def pools(endpoint: Endpoint, clock: Clock) -> Pools:
    return Pools({"gpu": endpoint}, clock)


def refuse(endpoint: Endpoint) -> None:
    """The engine refuses one more call."""
    mark = endpoint.health.begin(probe=True)
    assert mark is not None
    endpoint.health.end(mark, attempt(Symptom.BLOCKED), 1)


def test_a_batch_is_left_alone_for_twice_as_long_after_each_probe_in_vain(
    endpoint: Endpoint, pools: Pools, clock: Clock
) -> None:
    waits = []
    for _ in range(9):
        refuse(endpoint)
        assert not pools.is_to_wait(BRIEF)
        assert pools.found_blocked(BRIEF)
        assert not pools.found_blocked(BRIEF)  # what was in flight says the same
        began = clock.seconds
        while pools.is_to_wait(BRIEF):
            clock.seconds += 1
        waits.append(clock.seconds - began)
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300, 300]


def test_a_batch_that_was_never_tried_here_need_not_wait(endpoint: Endpoint, pools: Pools) -> None:
    refuse(endpoint)
    assert pools.found_blocked(BRIEF)
    other = replace(BRIEF, batch_id="batch-2")
    assert not pools.is_to_wait(other)
    assert pools.found_blocked(other)


def test_the_store_s_probe_comes_before_the_time_of_our_own_and_its_end_counts(
    endpoint: Endpoint, pools: Pools, clock: Clock
) -> None:
    refuse(endpoint)
    assert pools.found_blocked(BRIEF)
    pools.probe_now(BRIEF)
    assert not pools.is_to_wait(BRIEF)
    refuse(endpoint)
    assert pools.found_blocked(BRIEF)
    clock.seconds += 9
    assert pools.is_to_wait(BRIEF)


@pytest.mark.parametrize("is_served", [True, False])
def test_what_was_served_or_is_long_past_begins_anew(
    endpoint: Endpoint, pools: Pools, clock: Clock, is_served: bool
) -> None:
    for _ in range(2):
        refuse(endpoint)
        assert pools.found_blocked(BRIEF)
        pools.probe_now(BRIEF)
    if is_served:
        pools.served(BRIEF)
    else:
        clock.seconds += LONGEST_PROBE_SECONDS
    refuse(endpoint)
    assert pools.found_blocked(BRIEF)
    clock.seconds += 5
    assert not pools.is_to_wait(BRIEF)


def test_a_pool_that_can_serve_keeps_no_batch_waiting(endpoint: Endpoint, pools: Pools) -> None:
    assert not pools.found_blocked(BRIEF)
    refuse(endpoint)
    assert pools.found_blocked(BRIEF)
    mark = endpoint.health.begin(probe=True)
    assert mark is not None
    endpoint.health.end(mark, attempt(None), 1)
    assert not pools.is_to_wait(BRIEF)


def test_a_process_without_any_of_the_pools_says_so_once_in_a_while(clock: Clock) -> None:
    pools = Pools({}, clock)
    assert [pools.found_blocked(BRIEF), pools.found_blocked(BRIEF), pools.is_to_wait(BRIEF)] == [True, False, True]


def test_after_eight_whole_answers_in_a_row_no_first_token_is_expected_until_one_comes(endpoint: Endpoint) -> None:
    for _ in range(WHOLE_IN_A_ROW - 1):
        endpoint.heard(whole=True)
    assert endpoint.ask(400, 24).streamed
    endpoint.heard(whole=True)
    assert not endpoint.ask(400, 24).streamed
    endpoint.heard(whole=False)
    assert endpoint.ask(400, 24).streamed
    endpoint.heard(whole=True)
    assert endpoint.ask(400, 24).streamed
