"""Scrapes and snapshots come at times of their own: what batch held around a scrape is what is taken off it."""

import asyncio
from collections.abc import Iterator

import pytest

from scheduler.capacity import Amount, PoolCapacity
from scheduler.permit import Kind
from scheduler.signals.combine import Report
from scheduler.signals.differences import News
from scheduler.signals.engines import Engines
from scheduler.signals.observer import Own
from scheduler.signals.ours import LostLedger, OwnFirstTokens
from scheduler.signals.poll import STALE_SECONDS, Answer
from scheduler.signals.replicas import Scrape
from scheduler.signals.tokens import TokensPerRequest
from scheduler.snapshot import FirstToken
from tests.support.readings import snapshot
from tests.support.shift import pool_settings
from tickets_batch.settings import EngineSignal

TOKENS = TokensPerRequest(PoolCapacity(Amount(20, 60_000), Amount(8, 24_000), Amount(2, 6_000)))


class Scene:
    """Engines that are told what they scraped and when, on a clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        pool = pool_settings("http://127.0.0.1:9/v1")
        self.engines = Engines(pool, [("engine", EngineSignal(type="engine"))], lambda: self.now)

    def scrape(self, running: int, asked: float, came: float, first_tokens: int = 0) -> None:
        value = Scrape(running, 0, 0, None, first_tokens, counts_first_tokens=True)
        self.engines.polls[0].newest = Answer(value, asked, came)

    def report(self, at: float, batch_slots: int) -> Report:
        self.now = at
        report = self.engines.report(batch_slots, Own(), at, lambda since: 0, TOKENS)
        assert report is not None
        return report


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    asyncio.run(made.engines.aclose())


def test_a_permit_given_while_the_engine_was_asked_is_taken_off(scene: Scene) -> None:
    scene.report(0.0, batch_slots=2)
    scene.scrape(5, asked=0.1, came=0.2)
    assert scene.report(0.5, batch_slots=5).in_flight.slots == 0


def test_one_given_back_while_it_was_asked_is_taken_off_too(scene: Scene) -> None:
    scene.report(0.0, batch_slots=5)
    scene.scrape(5, asked=0.1, came=0.2)
    assert scene.report(0.5, batch_slots=2).in_flight.slots == 0


def test_what_batch_held_long_before_is_not(scene: Scene) -> None:
    scene.report(0.0, batch_slots=9)
    scene.report(0.5, batch_slots=2)
    scene.scrape(5, asked=0.6, came=0.7)
    assert scene.report(1.0, batch_slots=2).in_flight.slots == 3


def test_a_scrape_that_came_after_the_snapshot_waits_for_the_next(scene: Scene) -> None:
    scene.report(0.0, batch_slots=0)
    scene.scrape(5, asked=0.4, came=0.51)
    assert scene.report(0.5, batch_slots=0).in_flight.slots == 0
    assert scene.report(1.0, batch_slots=5).in_flight.slots == 0


def test_a_scrape_counts_once(scene: Scene) -> None:
    scene.scrape(1, asked=0.1, came=0.2)
    scene.report(0.5, batch_slots=0)
    scene.scrape(1, asked=0.6, came=0.7, first_tokens=3)
    assert [scene.report(at, batch_slots=0).arrivals for at in (1.0, 1.5)] == [3, 0]


def test_an_old_one_says_nothing(scene: Scene) -> None:
    scene.scrape(5, asked=0.1, came=0.2)
    report = scene.report(0.2 + STALE_SECONDS, batch_slots=0)
    assert report.in_flight.slots == 0
    assert [age.is_fresh for age in report.ages] == [False]


def test_begun_anew_it_has_no_news(scene: Scene) -> None:
    scene.scrape(1, asked=0.1, came=0.2)
    scene.report(0.5, batch_slots=0)
    scene.engines.begin_anew()
    scene.scrape(1, asked=9.6, came=9.7, first_tokens=300)
    assert scene.report(10.0, batch_slots=0).arrivals == 0


def test_what_batch_held_in_a_lost_ledger_is_in_flight_for_a_lease() -> None:
    lost = LostLedger(lease_seconds=5.0)
    held = [
        lost.most_slots(snapshot(epoch=epoch, batch=Amount(slots, 1000)), at)
        for epoch, slots, at in (("one", 9, 0.0), ("one", 7, 1.0), ("two", 0, 2.0), ("two", 3, 6.9), ("two", 3, 7.0))
    ]
    assert held == [9, 7, 7, 7, 3]


def test_first_tokens_that_are_not_listed_are_late_in_the_same_share() -> None:
    own = OwnFirstTokens(target_seconds=0.8)
    listed = tuple(FirstToken(Kind.BATCH, seconds, 500) for seconds in (0.5, 0.9))
    own.take(News(batch=listed, batch_first_tokens=10))
    own.take(News())
    assert (own.count, own.late) == (10, 5)
