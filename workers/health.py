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
FIRST_PROBE_SECONDS = 5.0
LONGEST_PROBE_SECONDS = 300.0


class Sign(Enum):
    """What one attempt says of the endpoint."""

    WORKS = auto()  # the model answered, well or badly
    FAILED = auto()  # it was reached and did not do its work
    OVERLOADED = auto()
    UNREACHABLE = auto()
    ANSWERS = auto()  # it refused this one request: reached, but no proof that it works
    BLOCKED = auto()  # it refuses every request: a wrong key, a wrong model
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
    Symptom.BLOCKED: Sign.BLOCKED,
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

    **Probes.** `blocked` says why no call can be expected to succeed: it is failing, or it refuses every request. Then
    one call at a time finds out whether that is still so, after five seconds, then after twice as long each time, up to
    five minutes.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._failed_jobs: set[int] = set()
        self._last_trouble = ""
        self._refusal: str | None = None  # why it refuses every request
        self._probe_at = 0.0
        self._probes = 0  # in vain
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
    def blocked(self) -> str | None:
        """Why no call can be expected to succeed now, for whatever reason; None while one can."""
        return self._refusal or self.failing

    @property
    def pause_seconds(self) -> float:
        """How long the endpoint is still to be left alone, but for probes that others decide on."""
        paused_until = max(self._paused_until, self._probe_at if self.blocked else 0.0)
        return max(0.0, paused_until - self._monotonic())

    @property
    def probes(self) -> int:
        """How many calls in a row found it still blocked."""
        return self._probes

    def begin(self, *, probe: bool = False) -> int | None:
        """A mark for a call that may be made now, None when none may; a `probe` does not wait for its time.

        Every mark goes to exactly one `end`, or to `not_made`.
        """
        if self._monotonic() < self._paused_until or (not probe and self.pause_seconds > 0):
            return None
        if self._window is not None and self._in_flight >= int(self._window):
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
        is_new = mark == self._pause  # begun since the last pause; what began before says nothing of the time after it
        trouble = attempt.detail or str(attempt.symptom)
        self._trip(sign, trouble, job_id)
        if sign is Sign.BLOCKED:
            self._refusal = trouble
        elif is_new and sign in (Sign.WORKS, Sign.ANSWERS):
            self._refusal = None
        if self.blocked is None:
            self._probes = 0
        elif is_new and sign in (Sign.BLOCKED, Sign.FAILED, Sign.UNREACHABLE):
            self._await_a_probe()
        if sign is not Sign.UNREACHABLE:
            return self._account(sign, attempt.retry_after_seconds, is_new=is_new)
        if is_new:
            self._begin_pause(CONNECT_AGAIN_SECONDS)  # this process's own: other machines may well reach it
        return None

    def _await_a_probe(self) -> None:
        if (
            self._refusal or self._unreachable_since is None
        ):  # one call a second is enough of a rest where nobody answers
            wait_seconds = min(LONGEST_PROBE_SECONDS, FIRST_PROBE_SECONDS * 2.0 ** min(self._probes, 10))
            self._probe_at = self._monotonic() + wait_seconds
            self._begin_pause(0.0)
        self._probes += 1

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

    def _account(self, sign: Sign, asked_seconds: float | None, *, is_new: bool) -> float | None:
        self._store = min(SPARE_OVERLOADS, self._store + OVERLOADED_SHARE)
        if sign is Sign.OVERLOADED:
            self._store -= 1.0
        if not is_new:
            return None
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
