"""Capacity as numbers: each worked out by hand from a small curve, and each with its origin."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from scheduler.capacity import Amount, PoolCapacity
from scheduler.curve import Curve, Step
from scheduler.hours import SharedHours
from scheduler.plan import Basis, Chat, Night, Origin, PlannedPool, Way, advise
from scheduler.speed import PoolSpeed
from scheduler.usual import UsualLoad

BERLIN = ZoneInfo("Europe/Berlin")
EVENING = datetime(2026, 11, 30, 21, 0, tzinfo=UTC)  # 22:00 in Berlin
MORNING = datetime(2026, 12, 1, 6, 0, tzinfo=UTC)
SHARED = PoolCapacity(Amount(20, 60_000), Amount(8, 24_000), Amount(2, 6_000))
OWN = PoolCapacity(Amount(20, 60_000), Amount(), Amount(20, 60_000))


def step(in_flight: int, tickets_per_second: float, probe_p95: float | None = 0.1) -> Step:
    seconds = in_flight / tickets_per_second
    return Step(
        in_flight, 10.0, 100, tickets_per_second, 0.0, 0.0, seconds, seconds, 0.1, 0.02, 0.1, probe_p95,
        probes=12,
    )  # fmt: skip


def curve(*steps: Step) -> Curve:
    return Curve(steps, prompt_tokens=460, output_tokens=40, ask_tokens=500, largest_tokens=900, tickets_from="a test")


# One ticket a second with two in flight, five from ten on.
CURVE = curve(step(2, 1.0), step(10, 5.0), step(20, 5.0))


def pool(capacity: PoolCapacity = SHARED, measured: Curve = CURVE, **changes: object) -> PlannedPool:
    planned = PlannedPool(
        name="gpu",
        model="test-model",
        capacity=capacity,
        ttft_target_seconds=0.8,
        basis=Basis(measured, Origin.MEASURED, "yesterday"),
        hours=SharedHours.of(None, BERLIN),
    )
    return replace(planned, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Sample:
    at: datetime
    interactive_slots: int
    interactive_tokens: int = 0
    reason: str = "headroom"


def every_half_hour(slots: Sequence[int], since: datetime) -> UsualLoad:
    """Chat that has so much in flight, half hour by half hour."""
    samples = [
        Sample(since + timedelta(minutes=30 * place + minute), count)
        for place, count in enumerate(slots)
        for minute in (0, 10, 20)
    ]
    return UsualLoad.of(samples, BERLIN)


def night(*pools: PlannedPool, tickets: int = 36_000, deadline_at: datetime | None = MORNING) -> Night:
    return Night(pools, tickets, EVENING, deadline_at)


class TestSpeed:
    def test_at_the_floor_batch_has_its_share_of_a_full_engine(self) -> None:
        assert PoolSpeed(CURVE, SHARED).floor == pytest.approx(5.0 * 2 / 20)

    def test_at_the_full_limit_it_has_the_engine_alone(self) -> None:
        assert PoolSpeed(CURVE, SHARED).full == pytest.approx(5.0)

    def test_a_pool_of_its_own_is_always_at_its_full_limit(self) -> None:
        speed = PoolSpeed(CURVE, OWN)
        assert speed.floor == speed.full == pytest.approx(5.0)

    def test_tokens_bind_before_slots_where_tickets_are_long(self) -> None:
        long = replace(CURVE, ask_tokens=6_000)
        assert PoolSpeed(long, SHARED).full_slots == pytest.approx(36_000 / 6_000)
        assert PoolSpeed(long, SHARED).floor_slots == 1

    def test_a_ticket_larger_than_the_floor_is_still_admitted_alone(self) -> None:
        assert PoolSpeed(replace(CURVE, ask_tokens=50_000), SHARED).floor_slots == 1

    def test_in_tokens_it_is_the_same_by_the_mean_ticket(self) -> None:
        assert PoolSpeed(CURVE, SHARED).full_tokens_per_second == pytest.approx(5.0 * 500)
        assert PoolSpeed(CURVE, SHARED).floor_tokens_per_second == pytest.approx(0.5 * 500)


class TestPool:
    def test_tickets_per_hour(self) -> None:
        assert pool().tickets_per_hour_at_floor.value == pytest.approx(1_800)
        assert pool().tickets_per_hour_at_full.value == pytest.approx(18_000)

    def test_every_number_says_where_it_came_from(self) -> None:
        planned = pool()
        assert planned.tickets_per_hour_at_full.origin is Origin.MEASURED
        assert planned.tickets_per_hour_at_floor.detail == "2 in flight beside 18 of the chat"
        people = planned.people_chatting
        assert people is not None
        assert people.origin is Origin.ASSUMED
        assert people.detail == "a message each 60 s, 200 tokens an answer, 4.1 s at this speed"

    def test_chat_has_all_but_the_floor_where_all_are_in_time(self) -> None:
        peak = pool().peak_chat_requests
        assert peak is not None
        assert peak.value == 18

    def test_chat_has_fewer_where_more_would_be_late(self) -> None:
        late = curve(step(2, 1.0), step(10, 5.0), step(20, 5.0, 3.0))
        peak = pool(measured=late).peak_chat_requests
        assert peak is not None
        assert (peak.value, peak.origin) == (8, Origin.MEASURED)

    def test_chat_has_nothing_where_even_one_is_late(self) -> None:
        peak = pool(measured=curve(step(2, 1.0, 3.0))).peak_chat_requests
        people = pool(measured=curve(step(2, 1.0, 3.0))).people_chatting
        assert peak is not None
        assert people is not None
        assert (peak.value, people.value) == (0, 0)

    def test_without_a_probe_the_settings_are_all_that_is_known(self) -> None:
        peak = pool(measured=curve(step(2, 1.0, None))).peak_chat_requests
        assert peak is not None
        assert (peak.value, peak.origin) == (18, Origin.CONFIGURED)

    def test_people_are_fewer_than_the_mean_would_allow(self) -> None:
        people = pool().people_chatting
        assert people is not None
        requests = people.value * 4.1 / 60
        assert requests + 1.645 * math.sqrt(requests) == pytest.approx(18, abs=0.2)

    def test_no_chat_goes_to_a_pool_of_batchs_own(self) -> None:
        assert pool(OWN).peak_chat_requests is None
        assert pool(OWN).people_chatting is None

    def test_cost_falls_with_the_number_in_flight(self) -> None:
        costs = dict(pool(cost_per_hour=3.6).cost_per_ticket())
        assert costs == {2: pytest.approx(0.001), 10: pytest.approx(0.0002), 20: pytest.approx(0.0002)}
        assert not list(pool().cost_per_ticket())


class TestNight:
    def test_with_no_chat_it_takes_the_full_rate(self) -> None:
        assert night(pool()).finish(Chat.NONE) == EVENING + timedelta(hours=2)
        assert night(pool()).latest_start(Chat.NONE) == MORNING - timedelta(hours=2)

    def test_with_a_chat_that_never_rests_it_takes_the_floors_rate(self) -> None:
        assert night(pool()).finish(Chat.FULL) == EVENING + timedelta(hours=20)

    def test_over_a_week_is_no_answer(self) -> None:
        assert night(pool(), tickets=1_000_000).finish(Chat.FULL) is None
        assert night(pool(), tickets=1_000_000).latest_start(Chat.FULL) is None

    def test_without_a_deadline_there_is_no_latest_start(self) -> None:
        assert night(pool(), deadline_at=None).latest_start(Chat.NONE) is None

    def test_several_pools_work_together(self) -> None:
        both = night(pool(), pool(OWN, name="deep"))
        assert both.finish(Chat.NONE) == EVENING + timedelta(hours=1)

    def test_outside_the_shared_hours_it_is_at_its_floor(self) -> None:
        """At 22:00 the pool is shared for an hour, at 23:00 two slots are left, without any chat beside them."""
        closes = pool(hours=SharedHours.of(["22:00-23:00"], BERLIN))
        expected = EVENING + timedelta(hours=1, seconds=(36_000 - 18_000) / 1.0)
        assert night(closes).finish(Chat.NONE) == expected
        assert night(closes, tickets=19_800).finish(Chat.FULL) == EVENING + timedelta(hours=11)

    def test_a_latest_start_is_one_from_which_it_is_done_in_time(self) -> None:
        closes = pool(hours=SharedHours.of(["22:00-02:00"], BERLIN))
        starts_at = night(closes).latest_start(Chat.NONE)
        assert starts_at is not None
        finish = replace(night(closes), starts_at=starts_at).finish(Chat.NONE)
        assert finish is not None
        assert abs(finish - MORNING) < timedelta(minutes=1)

    def test_last_weeks_chat_lies_between(self) -> None:
        usual = every_half_hour([12] * 4 + [0] * 20, EVENING)
        one = night(pool(usual=usual))
        assert one.knows_chat
        none, usually, full = one.finish(Chat.NONE), one.finish(Chat.USUAL), one.finish(Chat.FULL)
        assert none is not None
        assert usually is not None
        assert full is not None
        assert none + timedelta(minutes=30) < usually < full - timedelta(hours=4)

    def test_hours_without_a_sample_count_as_the_busiest(self) -> None:
        usual = every_half_hour([2, 9], EVENING)
        planned = pool(usual=usual)
        assert planned.usual_chat(EVENING + timedelta(hours=5)).slots == pytest.approx(9)
        assert planned.tickets_per_second(Chat.USUAL, EVENING + timedelta(hours=5)) < planned.tickets_per_second(
            Chat.USUAL, EVENING + timedelta(minutes=10)
        )

    def test_without_samples_the_chat_is_not_known(self) -> None:
        assert not night(pool()).knows_chat
        assert not night(pool(usual=UsualLoad.of((), BERLIN))).knows_chat
        assert night(pool(OWN)).knows_chat


class TestAdvice:
    def test_tickets_of_seconds_share_slots_with_the_floor_that_guarantees(self) -> None:
        """36,000 in 9 hours are 1.11 a second, of the 5 of a full engine: 4.4 of its 20 slots."""
        advice = advise(pool(), night(pool()))
        assert advice.way is Way.SLOTS
        assert advice.sizes == "with a floor of 5 slots of 20 it is done in time whatever the chat does"

    def test_tickets_of_minutes_share_by_time(self) -> None:
        slow = pool(measured=curve(step(1, 0.01), step(20, 0.2)))
        advice = advise(slow, night(slow, tickets=3_600))
        assert advice.way is Way.HOURS
        # 0.12/s with 12 in flight: 8 h 20 min before 07:00, from a quarter on.
        assert advice.sizes == 'shared_hours = ["22:30-07:00"] at least'

    def test_what_the_full_limit_cannot_do_takes_pools_of_its_own(self) -> None:
        advice = advise(pool(), night(pool(), tickets=400_000))
        assert advice.way is Way.TWO_POOLS
        assert advice.sizes == "that takes 3 engines like this one of batch's own, 10 slots each"

    def test_a_pool_of_its_own_says_how_much_of_it_is_needed(self) -> None:
        advice = advise(pool(OWN), night(pool(OWN), tickets=36_000))
        assert advice.way is Way.DEDICATED
        assert advice.sizes == "3 slots of batch's own suffice"

    def test_without_a_night_there_are_no_sizes(self) -> None:
        assert advise(pool(), None).sizes == ""
        assert advise(pool(), night(pool(), deadline_at=None)).sizes == ""
