"""Waiting for conditions."""

import asyncio

import pytest

from tests.support.wait import wait_until, wait_until_async


def test_the_first_true_value_is_returned() -> None:
    values = iter([0, None, "", "found"])
    assert wait_until(lambda: next(values), "a value", interval_seconds=0) == "found"


def test_what_was_awaited_in_vain_is_named() -> None:
    with pytest.raises(AssertionError, match=r"waited 0\.01 s in vain for the parcel \(last value: 0\)"):
        wait_until(lambda: 0, "the parcel", timeout_seconds=0.01, interval_seconds=0.001)


def test_a_condition_is_looked_at_once_more_when_time_is_up() -> None:
    assert wait_until(lambda: True, "nothing", timeout_seconds=0)


def test_on_a_loop_the_condition_may_be_a_coroutine_function() -> None:
    async def wait() -> None:
        done = asyncio.Event()
        asyncio.get_running_loop().call_soon(done.set)
        assert await wait_until_async(done.is_set, "the event")

        async def still_false() -> bool:
            return False

        with pytest.raises(AssertionError, match="for the impossible"):
            await wait_until_async(still_false, "the impossible", timeout_seconds=0.01, interval_seconds=0.001)

    asyncio.run(wait())
