"""A whole night in virtual time: when it is over, what is left, and what is told of it while it lasts."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from scheduler.capacity import Amount, PoolCapacity
from scheduler.hours import SharedHours
from scheduler.pace import Pace
from scheduler.simulation.night import ROW_SECONDS, Night, Row, play
from scheduler.simulation.paced import changes, play_paced
from scheduler.simulation.shapes import Arrival, alternating, burst
from scheduler.simulation.tickets import LONG, SHORT, Ticket, of_mean_lengths
from tests.simulation.sites import MIDDLE

pytestmark = pytest.mark.long

BERLIN = ZoneInfo("Europe/Berlin")
TEN = datetime(2026, 11, 30, 22, 0, tzinfo=BERLIN)
ALWAYS = SharedHours.of(None, BERLIN)


def night(tickets: int = 600, seconds: float | None = 600.0, kind: Ticket = SHORT, **named: object) -> Night:
    chat = alternating(MIDDLE, 1, 1200.0)
    deadline = None if seconds is None else TEN + timedelta(seconds=seconds)
    return replace(Night(MIDDLE, ALWAYS, [kind] * tickets, chat, TEN, deadline), **named)  # type: ignore[arg-type]


def test_a_night_ends_with_its_last_ticket() -> None:
    outcome = play(night())
    assert outcome.finished_at == outcome.ended_at
    assert outcome.finished_at is not None
    assert TEN < outcome.finished_at < TEN + timedelta(seconds=600)
    assert (outcome.tickets, outcome.tickets_left, outcome.tokens) == (600, 0, 600 * SHORT.tokens)


def test_the_chat_counts_until_then_and_no_longer() -> None:
    outcome = play(night())
    seconds = (outcome.ended_at - TEN).total_seconds()
    came = sum(arrival.at <= seconds for arrival in alternating(MIDDLE, 1, 1200.0))
    assert outcome.chat == came > 100
    assert outcome.ttft_p50_seconds is not None
    assert 0 < outcome.ttft_p50_seconds < MIDDLE.ttft_target_seconds


def test_at_the_deadline_nothing_is_admitted_and_after_the_grace_nothing_is_in_flight() -> None:
    slow = Ticket(500, 2000)  # most of a minute each
    outcome = play(night(tickets=20_000, seconds=300.0, grace_seconds=2.0, kind=slow))
    assert outcome.finished_at is None
    assert outcome.tickets_left == 20_000 - outcome.tickets > 0
    # What is withdrawn leaves its slot at the end of the step under way.
    assert 302.0 <= (outcome.ended_at - TEN).total_seconds() < 302.3
    assert outcome.withdrawn > outcome.yielded


def test_what_ends_within_the_grace_counts() -> None:
    short, long = (play(night(5000, 300.0, grace_seconds=grace, chat=[])) for grace in (0.0, 5.0))
    assert 0 < long.tickets - short.tickets <= MIDDLE.slots
    # With none everything in flight is withdrawn for good, with five seconds nothing.
    assert short.withdrawn - short.yielded > 0 == long.withdrawn - long.yielded


def test_a_ticket_that_ends_in_the_grace_as_the_last_one_makes_the_night_whole() -> None:
    one = replace(night(1, 1.0, grace_seconds=20.0, kind=Ticket(100, 200)), chat=[])
    outcome = play(one)
    assert outcome.finished_at is not None
    assert one.deadline_at is not None
    assert outcome.finished_at > one.deadline_at


def test_without_a_deadline_it_goes_on_to_the_last_ticket() -> None:
    assert play(night(tickets=3000, seconds=None)).tickets_left == 0


def test_a_row_comes_every_ten_seconds_and_the_rows_add_up() -> None:
    seen: list[Row] = []
    outcome = play(night(tickets=900, kind=LONG, chat=burst(MIDDLE, 1, 700.0)), seen.append)
    assert seen == list(outcome.rows)
    assert all(row.seconds == pytest.approx(ROW_SECONDS) for row in seen[:-1])
    assert all(after.at - before.at == timedelta(seconds=after.seconds) for before, after in pairwise(seen[:-1]))
    assert seen[-1].at == outcome.ended_at
    assert sum(row.tickets for row in seen) == outcome.tickets
    assert sum(row.tokens for row in seen) == outcome.tokens
    assert sum(row.withdrawn for row in seen) == outcome.withdrawn > 0
    assert sum(row.refused for row in seen) == outcome.refused
    assert [row.tickets_left for row in seen] == sorted((row.tickets_left for row in seen), reverse=True)
    assert seen[-1].tickets_left == outcome.tickets_left
    assert seen[-1].tokens_left == outcome.tickets_left * LONG.tokens


def test_rows_tell_what_was_held_and_what_might_be() -> None:
    rows = play(night(tickets=3000)).rows
    most = MIDDLE.capacity.most_batch
    assert all(row.limit.fits(most) for row in rows)
    assert max(row.held.slots for row in rows) > MIDDLE.capacity.floor.slots
    assert max(row.chat.slots for row in rows) > 2


def test_outside_its_hours_batch_stays_at_its_floor() -> None:
    hours = SharedHours.of(["22:05-22:10"], BERLIN)
    outcome = play(night(tickets=20_000, seconds=900.0, hours=hours))
    open_at = [row for row in outcome.rows if TEN + timedelta(seconds=310) < row.at <= TEN + timedelta(seconds=600)]
    closed = [row for row in outcome.rows if row.at <= TEN + timedelta(seconds=300)]
    assert len(open_at) == 29
    assert len(closed) == 30
    assert {row.rule for row in closed} == {"closed"}
    assert all(row.is_at_floor and row.held.slots <= MIDDLE.capacity.floor.slots for row in closed)
    assert sum(row.tickets for row in open_at) > 2 * sum(row.tickets for row in closed)
    assert outcome.rule_seconds["closed"] == pytest.approx(900 - 300, abs=2.5)
    assert outcome.floor_seconds >= outcome.rule_seconds["closed"]


def test_a_pool_of_batchs_own_has_no_floor() -> None:
    total = MIDDLE.capacity.total
    own = replace(MIDDLE, capacity=PoolCapacity(total, Amount(), total))
    outcome = play(night(site=own, chat=[]))
    assert outcome.floor_seconds == 0
    assert outcome.rule_seconds.keys() == {"dedicated"}
    assert not any(row.is_at_floor for row in outcome.rows)


def test_a_ticket_that_no_pool_can_carry_fails_and_the_others_go_on() -> None:
    most = MIDDLE.capacity.most_batch.tokens
    outcome = play(replace(night(), tickets=[Ticket(most, 1), *[SHORT] * 50]))
    assert (outcome.tickets, outcome.too_large, outcome.tickets_left) == (50, 1, 0)
    assert outcome.finished_at is not None


def test_a_ticket_holds_what_its_longest_answer_would_take() -> None:
    # 72,000 tokens are batch's at most: nine of 8,000, though each writes but 40.
    many, few = (play(night(tickets=300, kind=Ticket(500, 40, cap), chat=[])) for cap in (0, 7500))
    assert max(row.held.slots for row in many.rows) > 9
    assert max(row.held.slots for row in few.rows) == 9
    assert many.tokens == few.tokens == 300 * 540


def test_the_same_night_comes_out_the_same_and_another_seed_otherwise() -> None:
    one = night(tickets=900, kind=LONG, chat=burst(MIDDLE, 1, 700.0))
    assert play(one) == play(one)
    assert play(one).ended_at != play(replace(one, seed=2)).ended_at


def test_an_empty_night_is_over_at_once() -> None:
    outcome = play(night(tickets=0))
    assert (outcome.ended_at, outcome.finished_at, outcome.rows) == (TEN, TEN, ())


@pytest.mark.parametrize(
    "changed",
    [
        {"starts_at": datetime(2026, 11, 30, 22, 0)},  # noqa: DTZ001 - what is refused
        {"deadline_at": TEN},
        {"deadline_at": datetime(2026, 12, 1, 7, 0)},  # noqa: DTZ001
    ],
)
def test_a_night_has_aware_instants_in_order(changed: dict[str, datetime]) -> None:
    with pytest.raises(ValueError, match="night"):
        replace(night(), **changed)  # type: ignore[arg-type]


def test_lengths_are_right_on_average_and_never_nothing() -> None:
    made = of_mean_lengths(20_000, 500, 2, 1)
    assert sum(ticket.prompt_tokens for ticket in made) / len(made) == pytest.approx(500, rel=0.02)
    assert min(ticket.output_tokens for ticket in made) == 1
    assert made == of_mean_lengths(20_000, 500, 2, 1) != of_mean_lengths(20_000, 500, 2, 2)


class TestPace:
    """The production forecaster and judge, beside the night."""

    def test_a_small_batch_is_on_its_way_from_the_first_word(self) -> None:
        outcome, told = play_paced(night(tickets=1500, seconds=3600.0, chat=alternating(MIDDLE, 1, 3700.0)))
        assert outcome.finished_at is not None
        assert changes(told)
        assert {one.pace for one in changes(told)} <= {Pace.GUARANTEED, Pace.ON_TRACK}

    def test_a_hopeless_one_will_miss(self) -> None:
        outcome, told = play_paced(night(tickets=40_000, seconds=1200.0))
        assert outcome.tickets_left > 0
        assert changes(told)[-1].pace is Pace.WILL_MISS
        first = next(one for one in told if one.pace is Pace.WILL_MISS)
        assert first.forecast.at <= TEN + timedelta(seconds=180)

    def test_without_a_deadline_nothing_is_foreseen(self) -> None:
        assert play_paced(night(seconds=None))[1] == []

    def test_a_change_is_told_once(self) -> None:
        _, told = play_paced(night(tickets=40_000, seconds=1200.0))
        paces = [one.pace for one in changes(told)]
        assert len(told) > len(paces)
        assert all(one is not other for one, other in pairwise(paces))


def test_a_night_from_utc_is_the_same_instant() -> None:
    hours = SharedHours.of(["22:05-22:10"], BERLIN)
    one = night(tickets=500, hours=hours)
    assert one.deadline_at is not None
    other = replace(one, starts_at=TEN.astimezone(UTC), deadline_at=one.deadline_at.astimezone(UTC))
    assert play(other).ended_at == play(one).ended_at


def test_a_night_on_which_the_clocks_change_is_as_long_as_it_is() -> None:
    # 02:00 to 03:00 does not exist on 2027-03-28 in Berlin.
    start, deadline = (datetime(2027, 3, 28, hour, 58, tzinfo=BERLIN) for hour in (1, 3))
    one = night(starts_at=start, deadline_at=deadline, hours=SharedHours.of(["03:01-04:00"], BERLIN), tickets=50_000)
    assert one.deadline_seconds == 3600
    outcome = play(replace(one, deadline_at=datetime(2027, 3, 28, 3, 3, tzinfo=BERLIN)))
    assert [row.at.astimezone(BERLIN).strftime("%H:%M:%S") for row in outcome.rows[11:13]] == ["03:00:00", "03:00:10"]
    assert {row.rule for row in outcome.rows[:17]} == {"closed"}
    assert "closed" not in {row.rule for row in outcome.rows[18:]}


def test_a_chat_request_that_the_engine_cannot_take_is_an_error_not_a_silent_loss() -> None:
    small = replace(MIDDLE, profile=replace(MIDDLE.profile, context_tokens=1000))
    with pytest.raises(ValueError, match="refuses a request of 1100 tokens"):
        play(night(site=small, chat=[Arrival(1.0, 1000, 100)]))
