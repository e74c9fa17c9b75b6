"""The database's time, carried forward by the monotonic clock."""

from datetime import UTC, datetime, timedelta

import pytest

from jobs.store.clock import REREAD_SECONDS, SETTLING_SECONDS, Clock

START = datetime(2026, 11, 30, 22, 0, tzinfo=UTC)


class World:
    """A wall clock that can be stepped beside a monotonic one that cannot."""

    def __init__(self) -> None:
        self.wall, self.seconds, self.readings = START, 1_000.0, 0

    def read(self) -> datetime:
        self.readings += 1
        return self.wall

    def monotonic(self) -> float:
        return self.seconds

    def pass_seconds(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.seconds += seconds

    def step(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)


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
