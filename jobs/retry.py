"""What becomes of a job after an attempt: the error table of the design, as a table."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from jobs.hindrance import Hindrance
from jobs.job import Job
from jobs.outcomes import Attempt, Cancelled, Expired, Failed, Outcome, Requeued, Succeeded, Symptom

LARGEST_EXPONENT = 32  # beyond it every backoff stands at its cap


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a job may be tried and how long it rests in between.

    The rest after the n-th try is a random part of `base_seconds * 2**n`, at most `cap_seconds` ("full jitter"). Where
    the engine named a `Retry-After`, the job rests for that time (at most `retry_after_cap_seconds`) and up to half of
    it more, so that the jobs do not come back together.
    """

    attempts: int = 5
    base_seconds: float = 1.0
    cap_seconds: float = 60.0
    retry_after_cap_seconds: float = 300.0

    def backoff_seconds(self, tries: int, jitter: float) -> float:
        """The rest after `tries` earlier tries; `jitter` lies in [0, 1)."""
        return jitter * min(self.cap_seconds, self.base_seconds * 2.0 ** min(tries, LARGEST_EXPONENT))

    def asked_for_seconds(self, retry_after_seconds: float, jitter: float) -> float:
        """The rest where the engine named one; never shorter than it asked for below the cap."""
        asked = min(max(retry_after_seconds, 0.0), self.retry_after_cap_seconds)
        return asked + jitter * max(self.base_seconds, asked / 2)


@dataclass(frozen=True, slots=True)
class Case:
    """One attempt and everything the table needs to judge it."""

    attempt: Attempt
    symptom: Symptom
    job: Job
    policy: RetryPolicy
    endpoint_failing: bool
    jitter: Callable[[], float]

    @property
    def why(self) -> str:
        """The symptom and its detail, as the result row gives them."""
        return f"{self.symptom}: {self.attempt.detail}" if self.attempt.detail else str(self.symptom)

    @property
    def tries(self) -> int:
        """How often it was tried before: that users came first is no reason to rest longer."""
        return max(0, self.job.requeues - self.job.yields)

    def rest_seconds(self, tries: int) -> float:
        """How long the job rests: as long as the engine asked for, else by the number of earlier tries."""
        if self.attempt.retry_after_seconds is not None:
            return self.policy.asked_for_seconds(self.attempt.retry_after_seconds, self.jitter())
        return self.policy.backoff_seconds(tries, self.jitter())


def decide(
    attempt: Attempt, *, job: Job, policy: RetryPolicy, endpoint_failing: bool, jitter: Callable[[], float]
) -> Outcome:
    """The outcome of a job after `attempt`; every symptom has one.

    `endpoint_failing` is a circuit breaker's word that the endpoint fails everyone: then a failed call says nothing
    about its ticket and costs it no attempt. `jitter` gives numbers in [0, 1).
    """
    if attempt.symptom is None and attempt.label is not None:
        return Succeeded(attempt.label)
    symptom = attempt.symptom or Symptom.INVALID_OUTPUT
    return TABLE[symptom](Case(attempt, symptom, job, policy, endpoint_failing, jitter))


def _later(case: Case) -> Outcome:
    return Requeued(delay_seconds=case.rest_seconds(case.tries))


def _later_unless_unreachable_for_long(case: Case) -> Outcome:
    blocked = case.why if case.endpoint_failing else None
    return Requeued(delay_seconds=case.rest_seconds(case.tries), blocked=blocked)


def _again_after_a_rest(case: Case) -> Outcome:
    if case.endpoint_failing:
        return Requeued(delay_seconds=case.rest_seconds(case.tries), blocked=case.why)
    return _again(case, case.rest_seconds(case.job.attempts))


def _again_at_once(case: Case) -> Outcome:
    return _again(case, 0.0)


def _again(case: Case, delay_seconds: float) -> Outcome:
    if case.job.attempts + 1 >= case.policy.attempts:
        return Failed(case.why)
    return Requeued(delay_seconds=delay_seconds, spends_attempt=True)


def _shortened_once(case: Case) -> Outcome:
    return Failed(case.why) if case.job.truncated else Requeued(truncate=True)


def _never_again(case: Case) -> Outcome:
    return Failed(case.why)


def _when_the_batch_is_mended(case: Case) -> Outcome:
    return Requeued(blocked=case.attempt.detail or Hindrance.REFUSED)


def _users_first(_: Case) -> Outcome:
    return Requeued(is_yield=True)


def _cancelled(_: Case) -> Outcome:
    return Cancelled()


def _expired(_: Case) -> Outcome:
    return Expired()


TABLE: Mapping[Symptom, Callable[[Case], Outcome]] = MappingProxyType(
    {
        Symptom.OVERLOADED: _later,
        Symptom.UNREACHABLE: _later_unless_unreachable_for_long,
        Symptom.TIMED_OUT: _again_after_a_rest,
        Symptom.DISCONNECTED: _again_after_a_rest,
        Symptom.SERVER_ERROR: _again_after_a_rest,
        Symptom.INVALID_OUTPUT: _again_at_once,
        Symptom.TOO_LONG: _shortened_once,
        Symptom.REFUSED: _never_again,
        Symptom.TOO_LARGE: _never_again,
        Symptom.BLOCKED: _when_the_batch_is_mended,
        Symptom.WITHDRAWN: _users_first,
        Symptom.STOPPING: _users_first,
        Symptom.CANCELLED: _cancelled,
        Symptom.DEADLINE: _expired,
    }
)
