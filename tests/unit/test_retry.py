"""The error table of the design, row by row, and what holds for all of it."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.job import Job
from jobs.outcomes import Attempt, Cancelled, Expired, Failed, Outcome, Requeued, Succeeded, Symptom
from jobs.retry import TABLE, RetryPolicy, decide

NOW = datetime(2026, 11, 30, 2, tzinfo=UTC)
POLICY = RetryPolicy(attempts=5, base_seconds=1.0, cap_seconds=60.0, retry_after_cap_seconds=300.0)
SPENDING = {Symptom.TIMED_OUT, Symptom.DISCONNECTED, Symptom.SERVER_ERROR, Symptom.INVALID_OUTPUT}


def a_job(attempts: int = 0, requeues: int = 0, truncated: bool = False, yields: int = 0) -> Job:
    return Job(1, "b1", "T-1", "Subject", "Body", attempts, requeues, yields, truncated, "lease", NOW)


def an_attempt(symptom: Symptom | None, retry_after_seconds: float | None = None, detail: str = "detail") -> Attempt:
    return Attempt(NOW, 1.0, "gpu", "m", symptom=symptom, retry_after_seconds=retry_after_seconds, detail=detail)


def outcome(
    symptom: Symptom,
    job: Job | None = None,
    *,
    retry_after_seconds: float | None = None,
    detail: str = "detail",
    endpoint_failing: bool = False,
    jitter: float = 0.5,
) -> Outcome:
    return decide(
        an_attempt(symptom, retry_after_seconds, detail),
        job=job or a_job(),
        policy=POLICY,
        endpoint_failing=endpoint_failing,
        jitter=lambda: jitter,
    )


def test_a_label_succeeds() -> None:
    answered = Attempt(NOW, 1.0, "gpu", "m", label="billing")
    assert decide(answered, job=a_job(), policy=POLICY, endpoint_failing=False, jitter=lambda: 0.5) == Succeeded(
        "billing"
    )


def test_an_attempt_without_symptom_and_label_counts_as_invalid_output() -> None:
    nothing = an_attempt(None, detail="")
    last = a_job(attempts=4)
    assert decide(nothing, job=last, policy=POLICY, endpoint_failing=False, jitter=lambda: 0.5) == Failed(
        "invalid_output"
    )


def test_overload_rests_by_backoff_and_spends_nothing() -> None:
    assert outcome(Symptom.OVERLOADED, a_job(attempts=4, requeues=3)) == Requeued(delay_seconds=4.0)


def test_overload_rests_at_least_as_long_as_the_engine_asked() -> None:
    assert outcome(Symptom.OVERLOADED, retry_after_seconds=20, jitter=0.0) == Requeued(delay_seconds=20.0)
    assert outcome(Symptom.OVERLOADED, retry_after_seconds=20, jitter=0.5) == Requeued(delay_seconds=25.0)


def test_a_retry_after_of_nothing_still_spreads_the_jobs() -> None:
    assert outcome(Symptom.OVERLOADED, retry_after_seconds=0, jitter=0.5) == Requeued(delay_seconds=0.5)
    assert outcome(Symptom.OVERLOADED, retry_after_seconds=-5, jitter=0.5) == Requeued(delay_seconds=0.5)


def test_a_retry_after_of_a_day_is_capped() -> None:
    assert outcome(Symptom.OVERLOADED, retry_after_seconds=86_400, jitter=0.0) == Requeued(delay_seconds=300.0)


def test_overload_is_never_counted_against_the_endpoint() -> None:
    assert outcome(Symptom.OVERLOADED, endpoint_failing=True) == Requeued(delay_seconds=0.5)


@pytest.mark.parametrize("symptom", [Symptom.TIMED_OUT, Symptom.DISCONNECTED, Symptom.SERVER_ERROR])
class TestFailedCall:
    def test_is_retried_with_exponential_backoff(self, symptom: Symptom) -> None:
        rests = [outcome(symptom, a_job(attempts=spent)) for spent in range(4)]
        assert rests == [Requeued(delay_seconds=rest, spends_attempt=True) for rest in (0.5, 1.0, 2.0, 4.0)]

    def test_fails_with_its_symptom_when_the_attempts_are_used_up(self, symptom: Symptom) -> None:
        assert outcome(symptom, a_job(attempts=4), detail="after 120 s") == Failed(f"{symptom}: after 120 s")
        assert outcome(symptom, a_job(attempts=4), detail="") == Failed(str(symptom))

    def test_honours_retry_after(self, symptom: Symptom) -> None:
        seen = outcome(symptom, retry_after_seconds=10, jitter=0.0)
        assert seen == Requeued(delay_seconds=10.0, spends_attempt=True)

    def test_spends_nothing_and_blocks_while_the_endpoint_fails_everyone(self, symptom: Symptom) -> None:
        seen = outcome(symptom, a_job(attempts=4, requeues=2), endpoint_failing=True)
        assert seen == Requeued(delay_seconds=2.0, blocked=f"{symptom}: detail")


def test_unreachable_rests_unspent_and_blocks_only_when_it_lasts() -> None:
    assert outcome(Symptom.UNREACHABLE, a_job(attempts=4, requeues=1)) == Requeued(delay_seconds=1.0)
    seen = outcome(Symptom.UNREACHABLE, a_job(requeues=1), endpoint_failing=True, detail="connection refused")
    assert seen == Requeued(delay_seconds=1.0, blocked="unreachable: connection refused")


def test_invalid_output_is_asked_again_at_once_then_fails() -> None:
    assert outcome(Symptom.INVALID_OUTPUT) == Requeued(spends_attempt=True)
    assert outcome(Symptom.INVALID_OUTPUT, a_job(attempts=4), detail="empty") == Failed("invalid_output: empty")


def test_invalid_output_is_the_tickets_own_even_while_the_endpoint_fails() -> None:
    assert outcome(Symptom.INVALID_OUTPUT, endpoint_failing=True) == Requeued(spends_attempt=True)


def test_too_long_is_shortened_once_unspent_then_fails() -> None:
    assert outcome(Symptom.TOO_LONG) == Requeued(truncate=True)
    assert outcome(Symptom.TOO_LONG, a_job(truncated=True)) == Failed("too_long: detail")


@pytest.mark.parametrize("symptom", [Symptom.REFUSED, Symptom.TOO_LARGE])
def test_what_can_never_succeed_fails_at_once(symptom: Symptom) -> None:
    assert outcome(symptom) == Failed(f"{symptom}: detail")


def test_blocked_goes_back_unspent_with_the_reason() -> None:
    assert outcome(Symptom.BLOCKED, a_job(attempts=4), detail="401: invalid key") == Requeued(
        blocked="401: invalid key"
    )
    assert outcome(Symptom.BLOCKED, detail="") == Requeued(blocked="the endpoint refuses every request")


@pytest.mark.parametrize("symptom", [Symptom.WITHDRAWN, Symptom.STOPPING])
def test_making_room_is_a_yield_and_costs_nothing(symptom: Symptom) -> None:
    assert outcome(symptom, a_job(attempts=4)) == Requeued(is_yield=True)


def test_a_cancelled_batch_and_a_passed_deadline_end_the_job() -> None:
    assert outcome(Symptom.CANCELLED) == Cancelled()
    assert outcome(Symptom.DEADLINE) == Expired()


def test_the_policy_says_how_many_attempts_there_are() -> None:
    only_one = RetryPolicy(attempts=1)
    seen = decide(
        an_attempt(Symptom.SERVER_ERROR), job=a_job(), policy=only_one, endpoint_failing=False, jitter=lambda: 0.5
    )
    assert seen == Failed("server_error: detail")


def test_every_symptom_has_its_row() -> None:
    assert set(TABLE) == set(Symptom)


attempts_seen = st.builds(
    an_attempt,
    symptom=st.sampled_from(Symptom),
    retry_after_seconds=st.none() | st.floats(-10, 1e9, allow_nan=False),
    detail=st.text(max_size=20),
)
jobs_held = st.builds(a_job, attempts=st.integers(0, 10), requeues=st.integers(0, 10**9), truncated=st.booleans())
policies = st.builds(
    RetryPolicy,
    attempts=st.integers(1, 10),
    base_seconds=st.floats(0.01, 10),
    cap_seconds=st.floats(10, 600),
    retry_after_cap_seconds=st.floats(0, 1000),
)
jitters = st.floats(0, 1, exclude_max=True)


@given(attempts_seen, jobs_held, policies, st.booleans(), jitters)
def test_every_case_is_decided_within_bounds(
    attempt: Attempt, job: Job, policy: RetryPolicy, endpoint_failing: bool, jitter: float
) -> None:
    seen = decide(attempt, job=job, policy=policy, endpoint_failing=endpoint_failing, jitter=lambda: jitter)
    assert isinstance(seen, Succeeded | Failed | Requeued | Expired | Cancelled)
    if isinstance(seen, Requeued):
        longest = max(
            policy.cap_seconds,
            policy.retry_after_cap_seconds + max(policy.base_seconds, policy.retry_after_cap_seconds / 2),
        )
        assert 0 <= seen.delay_seconds <= longest
        asked = attempt.retry_after_seconds
        if attempt.symptom is Symptom.OVERLOADED and asked is not None:
            assert seen.delay_seconds >= min(asked, policy.retry_after_cap_seconds)
        assert not seen.spends_attempt or attempt.symptom in SPENDING
        assert not (seen.spends_attempt and (seen.is_yield or seen.blocked)), "nothing is paid for the sake of others"
        assert not seen.spends_attempt or job.attempts + 1 < policy.attempts


@given(st.lists(st.sampled_from(sorted(SPENDING)), min_size=10, max_size=10), policies, jitters)
def test_no_job_goes_round_for_ever_on_what_spends_attempts(
    symptoms: list[Symptom], policy: RetryPolicy, jitter: float
) -> None:
    calls = 0
    for spent, symptom in enumerate(symptoms):
        calls += 1
        seen = decide(
            an_attempt(symptom), job=a_job(attempts=spent), policy=policy, endpoint_failing=False, jitter=lambda: jitter
        )
        if isinstance(seen, Failed):
            break
        assert isinstance(seen, Requeued)
        assert seen.spends_attempt
    assert calls == policy.attempts


@given(st.integers(0, 10**6), jitters)
def test_the_backoff_is_any_part_of_a_doubling_ceiling(tries: int, jitter: float) -> None:
    ceiling = min(60.0, 2.0 ** min(tries, 10))
    assert POLICY.backoff_seconds(tries, jitter) == pytest.approx(jitter * ceiling)


@pytest.mark.parametrize("symptom", [Symptom.OVERLOADED, Symptom.UNREACHABLE, Symptom.SERVER_ERROR])
def test_that_users_came_first_makes_no_rest_longer(symptom: Symptom) -> None:
    often_yielded = outcome(symptom, a_job(requeues=12, yields=10), endpoint_failing=True, jitter=0.5)
    assert isinstance(often_yielded, Requeued)
    assert often_yielded.delay_seconds == 0.5 * 2**2
    kept_its_place = outcome(symptom, a_job(requeues=0, yields=3), endpoint_failing=True, jitter=0.5)
    assert isinstance(kept_its_place, Requeued)
    assert kept_its_place.delay_seconds == 0.5
