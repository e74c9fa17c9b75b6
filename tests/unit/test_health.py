import heapq
from datetime import UTC, datetime
from itertools import count, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.outcomes import Attempt, Symptom
from workers.health import SIGNS, SPARE_OVERLOADS, EndpointHealth


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def attempt(symptom: Symptom | None, *, detail: str = "", retry_after_seconds: float | None = None) -> Attempt:
    return Attempt(
        started_at=datetime(2026, 11, 30, tzinfo=UTC),
        seconds=1.0,
        pool="gpu",
        model="m",
        symptom=symptom,
        detail=detail,
        retry_after_seconds=retry_after_seconds,
        label="billing" if symptom is None else None,
    )


class Caller:
    """Makes calls one after the other, each for a new job unless told otherwise."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.health = EndpointHealth(self.clock)
        self._jobs = count(1)

    def call(
        self, symptom: Symptom | None, *, job_id: int | None = None, detail: str = "", retry_after: float | None = None
    ) -> float | None:
        mark = self.health.begin(probe=True)
        assert mark is not None
        seen = attempt(symptom, detail=detail, retry_after_seconds=retry_after)
        return self.health.end(mark, seen, job_id or next(self._jobs))

    def failing(self) -> str | None:
        return self.health.failing

    def blocked(self) -> str | None:
        return self.health.blocked

    def overload_until_paused(self) -> float:
        while True:
            pause = self.call(Symptom.OVERLOADED)
            if pause is not None:
                return pause


@pytest.fixture
def caller() -> Caller:
    return Caller()


def test_every_symptom_says_something_or_nothing_of_the_endpoint() -> None:
    assert set(SIGNS) == {None, *Symptom}


# The breaker.


@pytest.mark.parametrize("symptom", [Symptom.SERVER_ERROR, Symptom.TIMED_OUT, Symptom.DISCONNECTED])
def test_ten_jobs_failing_in_a_row_are_the_endpoints_fault(caller: Caller, symptom: Symptom) -> None:
    for _ in range(9):
        caller.call(symptom, detail="HTTP 500: the engine failed")
        assert caller.failing() is None
    caller.call(symptom, detail="HTTP 500: the engine failed")
    assert caller.failing() == "the endpoint fails every job: HTTP 500: the engine failed"


@pytest.mark.parametrize("answer", [None, Symptom.INVALID_OUTPUT])
def test_an_answer_in_between_starts_the_count_anew(caller: Caller, answer: Symptom | None) -> None:
    for _ in range(9):
        caller.call(Symptom.SERVER_ERROR)
    caller.call(answer)
    for _ in range(9):
        caller.call(Symptom.SERVER_ERROR)
    assert caller.failing() is None


@pytest.mark.parametrize(
    "other", [Symptom.REFUSED, Symptom.TOO_LONG, Symptom.BLOCKED, Symptom.WITHDRAWN, Symptom.CANCELLED]
)
def test_what_is_no_answer_of_the_model_neither_counts_nor_starts_anew(caller: Caller, other: Symptom) -> None:
    for _ in range(9):
        caller.call(Symptom.SERVER_ERROR)
        caller.call(other)
    assert caller.failing() is None
    caller.call(Symptom.SERVER_ERROR)
    assert caller.failing() is not None


def test_a_few_poison_tickets_are_not_the_endpoints_fault(caller: Caller) -> None:
    for _ in range(5):
        for job_id in range(1, 10):
            caller.call(Symptom.SERVER_ERROR, job_id=job_id)
    assert caller.failing() is None


def test_the_next_answer_closes_the_breaker(caller: Caller) -> None:
    for _ in range(50):
        caller.call(Symptom.TIMED_OUT)
    assert caller.failing() is not None
    caller.call(Symptom.REFUSED)
    assert caller.failing() is not None
    caller.call(None)
    assert caller.failing() is None


def test_no_connection_is_a_fault_once_it_lasts(caller: Caller) -> None:
    caller.call(Symptom.UNREACHABLE, detail="no connection to the endpoint: connection refused")
    caller.clock.seconds += 10.0
    caller.call(Symptom.UNREACHABLE, detail="no connection to the endpoint: connection refused")
    assert caller.failing() is None
    caller.clock.seconds += 2.0
    assert caller.failing() is None  # nobody has tried since
    caller.call(Symptom.UNREACHABLE, detail="no connection to the endpoint: connection refused")
    assert caller.failing() == "no connection to the endpoint: connection refused for 12 s"


@pytest.mark.parametrize("contact", [None, Symptom.SERVER_ERROR, Symptom.OVERLOADED, Symptom.REFUSED])
def test_any_contact_ends_being_unreachable(caller: Caller, contact: Symptom | None) -> None:
    caller.call(Symptom.UNREACHABLE)
    caller.clock.seconds += 20.0
    caller.call(Symptom.UNREACHABLE)
    assert caller.failing() is not None
    caller.clock.seconds += 1.0
    caller.call(contact)
    assert caller.failing() is None
    caller.call(Symptom.UNREACHABLE)
    assert caller.failing() is None


def test_our_own_doing_does_not_end_being_unreachable(caller: Caller) -> None:
    caller.call(Symptom.UNREACHABLE)
    caller.clock.seconds += 20.0
    caller.call(Symptom.UNREACHABLE)
    caller.clock.seconds += 1.0
    caller.call(Symptom.WITHDRAWN)
    assert caller.failing() is not None


def test_without_a_connection_one_call_a_second_finds_out_whether_there_is_one(caller: Caller) -> None:
    marks = [caller.health.begin() for _ in range(16)]
    pauses = [caller.health.end(mark, attempt(Symptom.UNREACHABLE), 1) for mark in marks if mark is not None]
    assert pauses == [None] * 16  # the pool is not paused for other processes
    for _ in range(3):
        assert caller.health.begin() is None
        caller.clock.seconds += 1.0
        caller.call(Symptom.UNREACHABLE)
    caller.clock.seconds += 1.0
    caller.call(None)
    assert all(caller.health.begin() is not None for _ in range(100))


def test_calls_in_vain_do_not_lengthen_a_later_pause(caller: Caller) -> None:
    for _ in range(5):
        caller.call(Symptom.UNREACHABLE)
        caller.clock.seconds += 1.0
    assert caller.overload_until_paused() == 1.0


# The budget.


def test_rare_overloads_pause_nothing(caller: Caller) -> None:
    for _ in range(1000):
        assert caller.call(Symptom.OVERLOADED) is None
        for _ in range(10):
            assert caller.call(None) is None


def test_a_burst_of_overloads_pauses_the_pool(caller: Caller) -> None:
    for _ in range(5):
        assert caller.call(Symptom.OVERLOADED) is None
    assert caller.call(Symptom.OVERLOADED) == 1.0
    assert caller.health.pause_seconds == 1.0
    assert caller.health.begin() is None


def test_a_pause_is_as_long_as_the_engine_asks_within_bounds(caller: Caller) -> None:
    caller.overload_until_paused()
    for asked, pause in [(7.0, 7.0), (0.0, 1.0), (86_400.0, 300.0)]:
        caller.clock.seconds += caller.health.pause_seconds
        assert caller.call(Symptom.OVERLOADED, retry_after=asked) == pause


def test_pauses_double_until_an_answer_comes(caller: Caller) -> None:
    pauses = [caller.overload_until_paused()]
    for _ in range(7):
        caller.clock.seconds += pauses[-1]
        pause = caller.call(Symptom.OVERLOADED)
        assert pause is not None
        pauses.append(pause)
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]
    caller.clock.seconds += pauses[-1]
    caller.call(None)
    assert caller.call(Symptom.OVERLOADED) == 1.0


def test_after_a_pause_one_probe_goes_first(caller: Caller) -> None:
    caller.clock.seconds += caller.overload_until_paused()
    probe = caller.health.begin()
    assert probe is not None
    assert caller.health.begin() is None
    caller.health.end(probe, attempt(None), 1)
    two = [caller.health.begin(), caller.health.begin()]
    assert None not in two
    assert caller.health.begin() is None


def test_a_probe_that_is_not_made_makes_room_for_another(caller: Caller) -> None:
    caller.clock.seconds += caller.overload_until_paused()
    probe = caller.health.begin()
    assert probe is not None
    caller.health.not_made(probe)
    assert caller.health.begin() is not None


@pytest.mark.parametrize("end", [Symptom.WITHDRAWN, Symptom.SERVER_ERROR, Symptom.REFUSED])
def test_a_probe_without_an_answer_is_followed_by_one_probe(caller: Caller, end: Symptom) -> None:
    caller.clock.seconds += caller.overload_until_paused()
    caller.call(end)
    assert caller.health.begin() is not None
    assert caller.health.begin() is None


def test_calls_at_a_time_double_each_round_up_to_half_of_what_they_were(caller: Caller) -> None:
    marks = [caller.health.begin() for _ in range(100)]
    pauses = [caller.health.end(mark, attempt(Symptom.OVERLOADED), 1) for mark in marks if mark is not None]
    assert pauses[5] == 1.0
    caller.clock.seconds += 1.0
    rounds = []
    for _ in range(9):
        begun = []
        while (mark := caller.health.begin()) is not None:
            begun.append(mark)
        rounds.append(len(begun))
        for mark in begun:
            caller.health.end(mark, attempt(None), 1)
    assert rounds == [1, 2, 4, 8, 16, 32, 48, 49, 50]


def test_when_the_debt_is_paid_there_is_no_bound(caller: Caller) -> None:
    caller.clock.seconds += caller.overload_until_paused()
    for _ in range(10):
        caller.call(None)
    assert all(caller.health.begin() is not None for _ in range(1000))


def test_overloads_of_calls_begun_before_the_pause_do_not_lengthen_it(caller: Caller) -> None:
    marks = [caller.health.begin() for _ in range(100)]
    pauses = [caller.health.end(mark, attempt(Symptom.OVERLOADED), 1) for mark in marks if mark is not None]
    assert [pause for pause in pauses if pause is not None] == [1.0]


def test_an_answer_to_a_call_begun_before_the_pause_does_not_open_it(caller: Caller) -> None:
    old = caller.health.begin()
    assert old is not None
    caller.clock.seconds += caller.overload_until_paused()
    caller.health.end(old, attempt(None), 1)
    assert caller.health.begin() is not None
    assert caller.health.begin() is None


def simulate(capacity: list[int], workers: int, call_seconds: float) -> tuple[int, int, int, int]:
    """An engine that refuses what is over its capacity (which changes every ten seconds), and callers that obey.

    Gives all calls, those refused, the most that were in flight, and how many pauses there were.
    """
    clock = Clock()
    start = clock.seconds
    health = EndpointHealth(clock)
    running: list[tuple[float, int, int]] = []  # (ends at, order, mark)
    calls = refused = peak = pauses = 0
    while clock.seconds - start < 10.0 * len(capacity):
        room = capacity[int((clock.seconds - start) // 10.0)]
        while len(running) < workers and (mark := health.begin()) is not None:
            calls += 1
            overloaded = len(running) >= room
            # A refusal comes at once; the next calls go out before it is known.
            ends_at = clock.seconds + (0.01 if overloaded else call_seconds)
            heapq.heappush(running, (ends_at, calls, mark if not overloaded else -1 - mark))
            peak = max(peak, len(running))
        if not running:
            clock.seconds += max(0.01, health.pause_seconds)
            continue
        ends_at, order, mark = heapq.heappop(running)
        clock.seconds = max(clock.seconds, ends_at)
        symptom = Symptom.OVERLOADED if mark < 0 else None
        refused += symptom is not None
        if health.end(mark if mark >= 0 else -1 - mark, attempt(symptom), order) is not None:
            pauses += 1
    return calls, refused, peak, pauses


@settings(max_examples=60, deadline=None)
@given(
    capacity=st.lists(st.sampled_from([0, 1, 3, 20, 100]), min_size=1, max_size=8),
    workers=st.integers(1, 100),
    call_seconds=st.floats(0.05, 5.0),
)
def test_overloads_stay_under_a_tenth_of_the_calls(capacity: list[int], workers: int, call_seconds: float) -> None:
    calls, refused, peak, pauses = simulate(capacity, workers, call_seconds)
    drops = 1 + sum(after < before for before, after in pairwise(capacity))
    assert refused <= calls * 0.1 + SPARE_OVERLOADS + 2 * peak * drops + pauses


def test_an_engine_that_is_always_too_small_is_not_hammered() -> None:
    calls, refused, _, _ = simulate([20] * 60, workers=100, call_seconds=0.5)
    assert refused / calls < 0.12
    assert calls > 0.3 * 20 * 600 / 0.5  # and still it is used


def test_an_engine_that_refuses_everything_for_an_hour_sees_a_probe_now_and_then() -> None:
    calls, refused, _, _ = simulate([0] * 360, workers=256, call_seconds=1.0)
    assert calls == refused
    assert refused < 256 + 3600 / 30 + 20


# An endpoint that is of no use, found out by one call at a time.


def test_what_refuses_every_request_is_blocked_until_a_request_is_answered(caller: Caller) -> None:
    caller.call(None)
    assert caller.blocked() is None
    caller.call(Symptom.BLOCKED, detail="HTTP 401: the engine wants a valid key")
    assert caller.blocked() == "HTTP 401: the engine wants a valid key"
    assert caller.failing() is None
    caller.call(None)
    assert caller.blocked() is None
    assert caller.health.begin() == caller.health.begin()


@pytest.mark.parametrize("symptom", [Symptom.REFUSED, Symptom.TOO_LONG, Symptom.INVALID_OUTPUT])
def test_a_request_refused_for_its_own_sake_shows_that_others_are_not(caller: Caller, symptom: Symptom) -> None:
    caller.call(Symptom.BLOCKED)
    caller.call(symptom)
    assert caller.blocked() is None


def test_a_blocked_endpoint_is_probed_ever_more_rarely(caller: Caller) -> None:
    caller.call(Symptom.BLOCKED)
    for wait_seconds in (5, 10, 20, 40, 80, 160, 300, 300):
        assert caller.health.pause_seconds == wait_seconds
        caller.clock.seconds += wait_seconds - 0.1
        assert caller.health.begin() is None
        caller.clock.seconds += 0.1
        mark = caller.health.begin()
        assert mark is not None
        assert caller.health.begin() is None
        caller.health.end(mark, attempt(Symptom.BLOCKED), 1)


def test_a_failing_endpoint_is_probed_too(caller: Caller) -> None:
    for _ in range(10):
        caller.call(Symptom.SERVER_ERROR)
    assert caller.blocked() == caller.failing()
    assert caller.health.begin() is None
    caller.clock.seconds += 5
    assert caller.health.begin() is not None


def test_calls_begun_before_an_endpoint_was_blocked_neither_open_it_nor_prolong_the_wait(caller: Caller) -> None:
    marks = [caller.health.begin() for _ in range(4)]
    for mark, symptom in zip(marks, [Symptom.BLOCKED, Symptom.BLOCKED, None, Symptom.BLOCKED], strict=True):
        assert mark is not None
        caller.health.end(mark, attempt(symptom), 1)
    assert caller.blocked()
    assert caller.health.pause_seconds == 5


def test_a_probe_that_was_withdrawn_is_made_again(caller: Caller) -> None:
    caller.call(Symptom.BLOCKED)
    caller.clock.seconds += 5
    mark = caller.health.begin()
    assert mark is not None
    caller.health.end(mark, attempt(Symptom.WITHDRAWN), 1)
    assert caller.health.begin() is not None


def test_who_has_no_other_endpoint_need_not_wait_for_the_time_of_a_probe(caller: Caller) -> None:
    caller.call(Symptom.BLOCKED)
    assert caller.health.begin() is None
    assert caller.health.begin(probe=True) is not None
    assert caller.health.begin(probe=True) is None
