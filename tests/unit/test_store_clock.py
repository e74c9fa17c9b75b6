"""The database's time, carried forward by the monotonic clock."""

from datetime import timedelta

import pytest

from jobs.store.clock import REREAD_SECONDS, SETTLING_SECONDS, Clock
from tests.support.stepping import World
from tests.support.store import START


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def clock(world: World) -> Clock:
    return Clock(world.read, world.monotonic)


def test_time_goes_on_without_reading_it_again(world: World, clock: Clock) -> None:
    assert clock.now() == START
    world.pass_seconds(REREAD_SECONDS - 0.5)
    assert clock.now() == START + timedelta(seconds=REREAD_SECONDS - 0.5)
    assert world.readings == 1
    world.pass_seconds(0.5)
    assert clock.now() == START + timedelta(seconds=REREAD_SECONDS)
    assert world.readings == 2


@pytest.mark.parametrize("step", [3600, -3600])
def test_a_step_is_taken_over_at_the_next_reading_and_unsettles_for_a_while(
    world: World, clock: Clock, step: float
) -> None:
    clock.now()
    world.step(step)
    assert clock.now() == START
    settled = [clock.is_settled]

    world.pass_seconds(REREAD_SECONDS)
    assert clock.now() == START + timedelta(seconds=REREAD_SECONDS + step)
    settled.append(clock.is_settled)
    world.pass_seconds(SETTLING_SECONDS - 1)
    settled.append(clock.is_settled)
    world.pass_seconds(1)
    settled.append(clock.is_settled)
    assert settled == [True, False, False, True]


def test_drift_is_no_step(world: World, clock: Clock) -> None:
    clock.now()
    world.step(0.9)
    world.pass_seconds(REREAD_SECONDS)
    clock.now()
    assert clock.is_settled


class TestAtLeast:
    """The time for what must not happen early."""

    def test_without_a_step_it_is_the_time(self, world: World, clock: Clock) -> None:
        assert clock.at_least() == START
        world.pass_seconds(3 * REREAD_SECONDS)
        assert clock.at_least() == clock.now() == START + timedelta(seconds=3 * REREAD_SECONDS)

    def test_a_step_forward_counts_when_it_has_stood_for_a_while(self, world: World, clock: Clock) -> None:
        clock.now()
        world.step(3600)
        world.pass_seconds(REREAD_SECONDS)
        assert clock.now() == START + timedelta(seconds=3600 + REREAD_SECONDS)
        assert clock.at_least() == START + timedelta(seconds=REREAD_SECONDS)
        world.pass_seconds(SETTLING_SECONDS - 1)
        assert clock.at_least() == START + timedelta(seconds=REREAD_SECONDS + SETTLING_SECONDS - 1)
        world.pass_seconds(1)
        assert clock.at_least() == clock.now() == START + timedelta(seconds=3600 + REREAD_SECONDS + SETTLING_SECONDS)

    def test_a_step_back_counts_at_once(self, world: World, clock: Clock) -> None:
        clock.now()
        world.step(-3600)
        world.pass_seconds(REREAD_SECONDS)
        assert clock.at_least() == clock.now() == START + timedelta(seconds=REREAD_SECONDS - 3600)

    def test_a_jump_there_and_back_was_never_there(self, world: World, clock: Clock) -> None:
        clock.now()
        passed = 0.0
        for step in (3600, 3600, -7200, 0, 0):
            world.step(step)
            world.pass_seconds(REREAD_SECONDS)
            passed += REREAD_SECONDS
            assert clock.at_least() == START + timedelta(seconds=passed)
        assert not clock.is_settled

    def test_a_second_step_later_has_its_own_while(self, world: World, clock: Clock) -> None:
        clock.now()
        for number in range(2):
            world.step(3600)
            world.pass_seconds(REREAD_SECONDS)
            assert clock.at_least() == clock.now() - timedelta(seconds=3600), number
            world.pass_seconds(SETTLING_SECONDS)
            assert clock.at_least() == clock.now()

    def test_a_night_asleep_is_a_step(self, world: World, clock: Clock) -> None:
        """In suspend the wall clock goes on and the monotonic one does not."""
        clock.now()
        world.step(8 * 3600)
        world.pass_seconds(REREAD_SECONDS)
        assert clock.at_least() == START + timedelta(seconds=REREAD_SECONDS)
        world.pass_seconds(SETTLING_SECONDS)
        assert clock.at_least() == START + timedelta(seconds=8 * 3600 + REREAD_SECONDS + SETTLING_SECONDS)
