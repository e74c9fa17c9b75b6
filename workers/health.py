"""What the attempts on one endpoint say of the endpoint itself: is it failing, and how much of it may be asked."""

import time
from collections.abc import Callable
from enum import Enum, auto

from jobs.outcomes import Attempt, Symptom

FAILING_JOBS = 10
UNREACHABLE_SECONDS = 10.0
CONNECT_AGAIN_SECONDS = 1.0
OVERLOADED_SHARE = 0.1
SPARE_OVERLOADS = 5.0
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
LONGEST_ASKED_PAUSE_SECONDS = 300.0


class Sign(Enum):
    """What one attempt says of the endpoint."""

    WORKS = auto()  # the model answered, well or badly
    FAILED = auto()  # it was reached and did not do its work
    OVERLOADED = auto()
    UNREACHABLE = auto()
    ANSWERS = auto()  # it refused this one request: reached, but no proof that it works
    NOTHING = auto()  # the call ended by our own doing


SIGNS = {
    None: Sign.WORKS,
    Symptom.INVALID_OUTPUT: Sign.WORKS,
    Symptom.SERVER_ERROR: Sign.FAILED,
    Symptom.TIMED_OUT: Sign.FAILED,
    Symptom.DISCONNECTED: Sign.FAILED,
    Symptom.OVERLOADED: Sign.OVERLOADED,
    Symptom.UNREACHABLE: Sign.UNREACHABLE,
    Symptom.TOO_LONG: Sign.ANSWERS,
    Symptom.REFUSED: Sign.ANSWERS,
    Symptom.BLOCKED: Sign.ANSWERS,
    Symptom.TOO_LARGE: Sign.NOTHING,
    Symptom.WITHDRAWN: Sign.NOTHING,
    Symptom.STOPPING: Sign.NOTHING,
    Symptom.CANCELLED: Sign.NOTHING,
    Symptom.DEADLINE: Sign.NOTHING,
}


class EndpointHealth:
    """A circuit breaker and a budget of retries for one endpoint, as one process sees it.

    **Breaker.** `failing` says why the endpoint counts as failing: server errors, timeouts or broken connections on ten
    different jobs without one answer in between (different ones, so that a handful of poison tickets at the end of a
    batch is not taken for a broken engine), or no connection for over ten seconds. It ends with the next answer, or
    with the next contact where there was no connection.

    **Budget.** Every call earns a tenth of an overload answer, up to five in store; every overload answer spends one.
    When that leaves a debt, `end` asks for a pause. After it `begin` admits one probe, then more calls at a time as
    answers come, until the debt is paid: one more per answer up to half of what there were when the pause began, then
    one more per round (the slow start of TCP). So overload answers stay under a tenth of all calls, but for the store,
    what was in flight when the engine's capacity fell, and the probes of an outage.

    Where there is no connection, one call a second finds out whether there is one again: every job that is tried in
    vain has to be written back.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._failed_jobs: set[int] = set()
        self._last_trouble = ""
        self._unreachable_since: float | None = None
        self._unreachable_seconds = 0.0
        self._store = SPARE_OVERLOADS
        self._paused_until = 0.0
        self._pauses_in_a_row = 0  # without an answer in between
        self._pause = 0  # number of the last pause; calls are marked with it
        self._in_flight = 0  # calls begun since the last pause
        self._window: float | None = None  # how many of them there may be; None: no bound
        self._half = 0.0  # up to here the window grows fast

    @property
    def failing(self) -> str | None:
        """Why no call can be expected to succeed now, None while one can."""
        if self._unreachable_seconds > UNREACHABLE_SECONDS:
            return f"{self._last_trouble} for {self._unreachable_seconds:.0f} s"
        if len(self._failed_jobs) >= FAILING_JOBS:
            return f"the endpoint fails every job: {self._last_trouble}"
        return None

    @property
    def pause_seconds(self) -> float:
        """How long the endpoint is still to be left alone."""
        return max(0.0, self._paused_until - self._monotonic())

    def begin(self) -> int | None:
        """A mark for a call that may be made now, None when none may.

        Every mark goes to exactly one `end`, or to `not_made`.
        """
        if self.pause_seconds > 0 or (self._window is not None and self._in_flight >= int(self._window)):
            return None
        self._in_flight += 1
        return self._pause

    def not_made(self, mark: int) -> None:
        """The call was not made after all."""
        if mark == self._pause:
            self._in_flight -= 1

    def end(self, mark: int, attempt: Attempt, job_id: int) -> float | None:
        """Take note of what a call showed; seconds for which the whole pool is to be paused, if it is."""
        self.not_made(mark)
        sign = SIGNS[attempt.symptom]
        if sign is Sign.NOTHING:
            return None
        self._trip(sign, attempt.detail or str(attempt.symptom), job_id)
        if sign is not Sign.UNREACHABLE:
            return self._account(sign, attempt.retry_after_seconds, mark)
        if mark == self._pause:
            self._begin_pause(CONNECT_AGAIN_SECONDS)  # this process's own: other machines may well reach it
        return None

    def _trip(self, sign: Sign, trouble: str, job_id: int) -> None:
        if sign is Sign.UNREACHABLE:
            now = self._monotonic()
            self._unreachable_since = now if self._unreachable_since is None else self._unreachable_since
            self._unreachable_seconds = now - self._unreachable_since
            self._last_trouble = trouble
            return
        self._unreachable_since = None
        self._unreachable_seconds = 0.0
        if sign is Sign.WORKS:
            self._failed_jobs.clear()
        elif sign is Sign.FAILED:
            self._last_trouble = trouble
            if len(self._failed_jobs) < FAILING_JOBS:
                self._failed_jobs.add(job_id)

    def _account(self, sign: Sign, asked_seconds: float | None, mark: int) -> float | None:
        self._store = min(SPARE_OVERLOADS, self._store + OVERLOADED_SHARE)
        if sign is Sign.OVERLOADED:
            self._store -= 1.0
        if mark != self._pause:
            return None  # begun before the last pause: it says nothing of the time after it
        if sign is Sign.WORKS:
            self._pauses_in_a_row = 0
            if self._window is not None:
                step = 1.0 if self._window < self._half else 1.0 / self._window
                self._window = None if self._store >= 0 else self._window + step
        if sign is Sign.OVERLOADED and self._store < 0:
            self._pauses_in_a_row += 1
            return self._begin_pause(self._overload_pause_seconds(asked_seconds))
        return None

    def _overload_pause_seconds(self, asked_seconds: float | None) -> float:
        if asked_seconds is not None:
            return min(LONGEST_ASKED_PAUSE_SECONDS, max(FIRST_PAUSE_SECONDS, asked_seconds))
        return min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(self._pauses_in_a_row - 1, 10))

    def _begin_pause(self, seconds: float) -> float:
        self._paused_until = self._monotonic() + seconds
        self._pause += 1
        if self._window != 1.0:  # a probe that fails is no measure
            self._half = ((self._in_flight + 1) if self._window is None else self._window) / 2
        self._in_flight = 0
        self._window = 1.0
        return seconds
