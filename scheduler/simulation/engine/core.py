"""A continuous-batching engine as a discrete-event model: no input, no output, no clock of its own.

It schedules as vLLM's V1 scheduler does. In each step every decoding sequence gets one token first; what is left
of the step's token budget prefills, the sequence that is half prefilled before any other, then new ones from the
queue while a slot, KV room and budget are left. So at most one sequence is ever half prefilled, and a request
stays in the queue until the step that computes its first chunk. Unlike vLLM it reserves KV for prompt and output
when it admits, so it never preempts.

A stretch of steps in which nothing can change is taken in one jump; the result is the same as step by step.
"""

import math
from heapq import heappop, heappush

from scheduler.simulation.engine.profile import EngineProfile
from scheduler.simulation.engine.queue import WaitingQueue
from scheduler.simulation.engine.request import Event, Rejected, Request, Token
from scheduler.simulation.engine.sequence import Sequence

__all__ = ["EngineCore", "EngineProfile", "Request"]


class EngineCore:
    """Tell it what happens with `submit` and `abort`, move it with `advance`, ask `next_event_time` when to return.

    Times are seconds and never go back. A step is fixed when `next_event_time` is asked or time passes its start:
    what is told before that, at the same instant, is still part of it. With `stream_tokens` every token is an
    event and steps are taken one by one.
    """

    def __init__(self, profile: EngineProfile, *, stream_tokens: bool = False) -> None:
        self._profile = profile
        self._stream_tokens = stream_tokens
        self._known: dict[str, Sequence] = {}
        self._running: dict[str, Sequence] = {}
        self._queue = WaitingQueue()
        self._order = 0
        self._partial: Sequence | None = None  # admitted, not yet wholly prefilled
        self._decoding = 0
        self._due: list[tuple[int, int, Sequence]] = []  # (step, order, sequence): next milestone of each
        self._paused: list[Sequence] = []  # hold a slot and compute nothing until wake_at
        self._leaving: list[Sequence] = []  # aborted, still in their slots until release_step
        self._kv_reserved = 0
        self._kv_used = 0
        self._warm_prefixes: set[str] = set()
        self._events: list[Event] = []
        self._step = 0
        self._start = 0.0
        # The stretch under way; meaningful while _planned.
        self._planned = False
        self._end = 0.0
        self._step_seconds = 0.0
        self._steps = 0
        self._prefill_tokens = 0
        self._prefilled: list[Sequence] = []

    # What an observer sees, as of the last step boundary.

    @property
    def profile(self) -> EngineProfile:
        return self._profile

    @property
    def steps(self) -> int:
        return self._step

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return self._queue.count

    @property
    def kv_usage(self) -> float:
        """The share of the KV cache that holds computed tokens, 0 to 1."""
        return self._kv_used / self._profile.kv_capacity_tokens

    def count_by_class(self) -> dict[str, tuple[int, int]]:
        """(running, waiting) of each class that is present."""
        counts: dict[str, tuple[int, int]] = {}
        for sequence in self._known.values():
            running, waiting = counts.get(sequence.request.klass, (0, 0))
            started = sequence.started_at is not None
            counts[sequence.request.klass] = (running + started, waiting + (not started))
        return counts

    # What happens to it.

    def submit(self, request: Request, now: float) -> Rejected | None:
        """Queue a request, or say why the engine refuses it at once."""
        self._run_until(now)
        profile = self._profile
        tokens = request.prompt_tokens + request.output_tokens
        if tokens > profile.context_tokens or tokens > profile.kv_capacity_tokens:
            return Rejected(request, now, "too_long")
        free_slots = max(0, profile.slots - len(self._running))
        if profile.max_queue is not None and self._queue.count - free_slots >= profile.max_queue:
            return Rejected(request, now, "queue_full")
        if request.id in self._known:
            raise ValueError(f"request {request.id} is already in the engine")
        if self._planned and free_slots:
            self._cut(now)
        self._order += 1
        sequence = Sequence(request, self._order, now)
        self._known[request.id] = sequence
        rank = request.priority if profile.policy == "priority" else 0
        self._queue.push(rank, sequence)
        return None

    def abort(self, request_id: str, now: float, *, hold_seconds: float = 0.0) -> bool:
        """The client is gone: free the slot at the next step boundary. False if the engine no longer knows it.

        With `hold_seconds` the engine notices so much later, and the slot is held for that long.
        """
        self._run_until(now)
        sequence = self._known.get(request_id)
        if sequence is None or sequence.aborting:
            return sequence is not None
        sequence.aborting = True
        if sequence.started_at is None:
            self._queue.remove(sequence)
            self._leave(sequence, now)
            return True
        if self._planned:
            self._cut(now)
        if hold_seconds > 0:
            sequence.hold_until = now + hold_seconds
        else:
            boundary = self._step + (self._steps if self._planned else 0)
            sequence.release_step = boundary + self._profile.abort_delay_steps
        self._leaving.append(sequence)
        if not self._planned:
            self._release_leaving()
        return True

    def set_profile(self, profile: EngineProfile, now: float) -> None:
        """Change speed and bounds from the next step on; what is in a slot or in the queue keeps its place."""
        self._run_until(now)
        if self._planned:
            self._cut(now)
        self._profile = profile

    def forget_prefixes(self) -> None:
        """Empty the prefix cache."""
        self._warm_prefixes.clear()

    # Time.

    def next_event_time(self) -> float:
        """When `advance` is next worth calling; infinity when nothing will happen by itself."""
        if not self._planned:
            self._plan()
        if self._events:
            return self._events[0].at
        return self._end if self._planned else self._next_wake()

    def advance(self, to_time: float) -> list[Event]:
        """Run to `to_time` and return what happened, in order, since the last call."""
        self._run_until(to_time)
        events, self._events = self._events, []
        return events

    def _run_until(self, to_time: float) -> None:
        while True:
            if self._planned:
                if self._end > to_time:
                    return
                self._complete()
            elif self._start >= to_time:
                return
            elif not self._plan():
                self._start = min(self._next_wake(), to_time)
                self._wake_paused()

    def _next_wake(self) -> float:
        return min((sequence.wake_at for sequence in self._paused), default=math.inf)

    def _has_work(self) -> bool:
        return self._queue.count > 0 or self._decoding > 0 or self._partial is not None

    # One stretch: plan it, perhaps cut it short, complete it.

    def _plan(self) -> bool:
        """Fix the next stretch; False when there is nothing to compute."""
        self._wake_paused()
        profile = self._profile
        decoding = self._decoding
        prefill = self._schedule_prefill(max(0, profile.step_token_budget - decoding))
        if not decoding and not prefill:
            return False
        seconds = (
            profile.step_base_seconds
            + prefill * profile.prefill_token_seconds
            + decoding * profile.decode_sequence_seconds
        )
        self._step_seconds = seconds
        self._prefill_tokens = prefill
        self._steps = 1 if prefill or self._stream_tokens else self._quiet_steps(seconds)
        self._end = self._start + self._steps * seconds
        self._planned = True
        return True

    def _schedule_prefill(self, budget: int) -> int:
        """Spend the budget on prompt chunks, admitting from the queue; returns the tokens spent."""
        left = budget
        sequence = self._partial
        while True:
            if sequence is None:
                sequence = self._admit() if left > 0 else None
                if sequence is None:
                    return budget - left
            chunk = min(sequence.prefill_left, left)
            left -= chunk
            sequence.prefill_left -= chunk
            if sequence.prefill_left:
                self._partial = sequence
                return budget - left
            self._partial = None
            self._prefilled.append(sequence)
            sequence = None

    def _admit(self) -> Sequence | None:
        profile = self._profile
        sequence = self._queue.head()
        if sequence is None or len(self._running) >= profile.slots:
            return None
        if self._kv_reserved + sequence.kv_tokens > profile.kv_capacity_tokens:
            return None
        self._queue.pop_head()
        request = sequence.request
        self._running[request.id] = sequence
        self._kv_reserved += sequence.kv_tokens
        sequence.started_at = max(self._start, sequence.arrived_at)
        if profile.prefix_cache_tokens and request.prefix in self._warm_prefixes:
            # The last prompt token is always computed: its output is the first token.
            sequence.cached_tokens = min(profile.prefix_cache_tokens, request.prompt_tokens - 1)
            sequence.prefill_left -= sequence.cached_tokens
            self._kv_used += sequence.cached_tokens
        return sequence

    def _quiet_steps(self, seconds: float) -> int:
        """How many steps without prefill can be taken before anything changes."""
        due = self._due
        while due and not due[0][2].is_due(due[0][0]):
            heappop(due)
        steps = due[0][0] - self._step
        for sequence in self._leaving:
            steps = min(steps, sequence.release_step - self._step)
        if seconds > 0:
            for sequence in self._paused:
                if sequence.wake_at < math.inf:
                    steps = min(steps, _steps_to_reach(sequence.wake_at - self._start, seconds))
        return max(1, steps)

    def _cut(self, now: float) -> None:
        """End the stretch with the step that is under way now."""
        if self._steps > 1:
            self._steps = min(self._steps, _steps_to_reach(now - self._start, self._step_seconds))
            self._end = self._start + self._steps * self._step_seconds

    def _complete(self) -> None:
        self._planned = False
        self._step += self._steps
        self._start = self._end
        self._kv_used += self._prefill_tokens + self._steps * self._decoding
        if self._stream_tokens:
            self._emit_tokens()
        due = self._due
        while due and due[0][0] <= self._step:
            step, _, sequence = heappop(due)
            if sequence.is_due(step):
                self._reach(sequence)
        if self._prefilled:
            prefilled, self._prefilled = self._prefilled, []
            for sequence in prefilled:
                self._begin_decoding(sequence)
        if self._leaving:
            self._release_leaving()

    def _emit_tokens(self) -> None:
        for sequence in self._running.values():
            number = self._step - sequence.base_step
            if sequence.decoding and not sequence.aborting and number > 1:
                self._events.append(Token(sequence.request, self._start, number))

    # One sequence: its milestones are the first token, the start of a stall, the last token.

    def _begin_decoding(self, sequence: Sequence) -> None:
        request = sequence.request
        if request.prefix is not None and self._profile.prefix_cache_tokens:
            self._warm_prefixes.add(request.prefix)
        if request.stall is not None and request.stall.after_tokens == 0:
            self._pause(sequence, self._start + request.stall.seconds)
            return
        # The step that ends a prefill also yields the first token, which takes KV room only in the next step.
        sequence.base_step = self._step - 1
        sequence.decoding = True
        self._decoding += 1
        self._kv_used += 1
        self._reach(sequence)

    def _reach(self, sequence: Sequence) -> None:
        """The sequence has come to its next milestone."""
        request = sequence.request
        generated = self._step - sequence.base_step
        if generated == 1 and sequence.first_token_at is None:
            sequence.first_token_at = self._start
            if not sequence.aborting:
                self._events.append(sequence.first_token(self._start))
        if sequence.hold_until is not None:
            return  # its slot is about to be parked
        if generated >= request.output_tokens:
            self._leave(sequence, self._start)
        elif request.stall is not None and generated == request.stall.after_tokens and not sequence.stalled:
            self._pause(sequence, self._start + request.stall.seconds)
        else:
            self._schedule_milestone(sequence, generated)

    def _schedule_milestone(self, sequence: Sequence, generated: int) -> None:
        request = sequence.request
        target = request.output_tokens if generated else 1
        if request.stall is not None and not sequence.stalled and generated < request.stall.after_tokens:
            target = min(target, request.stall.after_tokens)
        sequence.due_step = self._step + target - generated
        heappush(self._due, (sequence.due_step, sequence.order, sequence))

    def _pause(self, sequence: Sequence, wake_at: float) -> None:
        sequence.stalled = True
        sequence.wake_at = wake_at
        sequence.generated_at_pause = self._step - sequence.base_step if sequence.decoding else 0
        sequence.due_step = -1
        if sequence.decoding:
            sequence.decoding = False
            self._decoding -= 1
        self._paused.append(sequence)

    def _wake_paused(self) -> None:
        if not self._paused:
            return
        awake = [sequence for sequence in self._paused if sequence.wake_at <= self._start]
        self._paused = [sequence for sequence in self._paused if sequence.wake_at > self._start]
        for sequence in awake:
            if sequence.hold_until is not None:
                self._leave(sequence, self._start)
                continue
            sequence.decoding = True
            self._decoding += 1
            sequence.base_step = self._step - sequence.generated_at_pause
            self._schedule_milestone(sequence, sequence.generated_at_pause)

    def _release_leaving(self) -> None:
        """At a step boundary: let go of aborted sequences whose time has come, park those that are held."""
        idle = not self._has_work()
        leaving, self._leaving = self._leaving, []
        for sequence in leaving:
            if sequence.request.id not in self._running:
                continue
            if sequence.hold_until is not None:
                self._park(sequence, sequence.hold_until)
            elif sequence.release_step <= self._step or idle:
                self._leave(sequence, self._start)
            else:
                self._leaving.append(sequence)

    def _park(self, sequence: Sequence, until: float) -> None:
        if sequence is self._partial:
            self._partial = None
        if sequence in self._paused:
            sequence.wake_at = until
        else:
            self._pause(sequence, until)

    def _leave(self, sequence: Sequence, at: float) -> None:
        request_id = sequence.request.id
        del self._known[request_id]
        sequence.due_step = -1
        generated = sequence.generated_at(self._step)
        if sequence.started_at is not None:
            del self._running[request_id]
            self._kv_reserved -= sequence.kv_tokens
            self._kv_used -= sequence.computed_prompt_tokens + generated
            if sequence is self._partial:
                self._partial = None
            if sequence.decoding:
                self._decoding -= 1
            elif sequence in self._paused:
                self._paused.remove(sequence)
        self._events.append(sequence.aborted(at, generated) if sequence.aborting else sequence.finished(at))


def _steps_to_reach(seconds: float, step_seconds: float) -> int:
    """The least number of whole steps, at least one, that end at or after `seconds` from now."""
    # A boundary that was itself computed in floating point must not count as one step more.
    return max(1, math.ceil(seconds / step_seconds - 1e-9)) if step_seconds > 0 else 1
