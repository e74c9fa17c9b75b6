"""The engine's core, by schedules worked out by hand and by what must hold for any.

`PLAIN` makes the sums easy: a step takes 1 s, 10 ms more for each prompt token and 0.1 s for each decoding sequence;
100 tokens fit in a step and two sequences in the engine.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.simulation.engine.core import EngineCore, EngineProfile, Request
from scheduler.simulation.engine.request import Aborted, Event, Finished, FirstToken, Stall, Token

PLAIN = EngineProfile(
    slots=2,
    step_token_budget=100,
    step_base_seconds=1.0,
    prefill_token_seconds=0.01,
    decode_sequence_seconds=0.1,
    kv_capacity_tokens=10_000,
    context_tokens=10_000,
)


def told(events: Iterable[Event]) -> list[tuple[str, str, float]]:
    """What happened to whom, and when."""
    return [(type(event).__name__, event.request.id, round(event.at, 9)) for event in events]


def run_to_end(core: EngineCore) -> list[Event]:
    events: list[Event] = []
    while (now := core.next_event_time()) < math.inf:
        events += core.advance(now)
    return events


def test_one_request_prefills_in_its_first_step_and_decodes_one_token_in_each_later_one() -> None:
    core = EngineCore(PLAIN)
    core.submit(Request("a", prompt_tokens=50, output_tokens=3), now=10.0)
    # 1 + 50 x 0.01, then twice 1 + 0.1.
    assert told(run_to_end(core)) == [("FirstToken", "a", 11.5), ("Finished", "a", 13.7)]
    assert core.steps == 3


def test_a_long_prompt_is_prefilled_in_chunks_of_the_step_budget() -> None:
    core = EngineCore(PLAIN)
    core.submit(Request("a", 250, 1), now=0.0)
    # 100, 100 and 50 tokens: 2 + 2 + 1.5 s.
    assert told(run_to_end(core)) == [("FirstToken", "a", 5.5), ("Finished", "a", 5.5)]


def test_decoding_sequences_take_their_tokens_from_the_budget_before_any_prefill() -> None:
    core = EngineCore(PLAIN)
    core.submit(Request("a", 10, 10), now=0.0)
    core.advance(1.1)
    core.submit(Request("b", 100, 1), now=1.1)
    # One of the 100 tokens is a's: b's prompt takes 99 (1 + 0.99 + 0.1 s) and 1 (1 + 0.01 + 0.1 s).
    events = [event for event in run_to_end(core) if event.request.id == "b"]
    assert told(events) == [("FirstToken", "b", 4.3), ("Finished", "b", 4.3)]


def test_a_request_that_comes_during_a_step_waits_for_the_next() -> None:
    core = EngineCore(PLAIN)
    core.submit(Request("a", 100, 1), now=0.0)
    core.advance(0.5)
    core.submit(Request("b", 100, 1), now=0.5)
    assert core.waiting == 1
    assert told(run_to_end(core))[2:] == [("FirstToken", "b", 4.0), ("Finished", "b", 4.0)]


def test_requests_that_come_at_the_same_moment_share_a_step() -> None:
    core = EngineCore(PLAIN)
    core.submit(Request("a", 20, 1), now=0.0)
    core.submit(Request("b", 30, 1), now=0.0)
    first_tokens = [event for event in run_to_end(core) if isinstance(event, FirstToken)]
    assert told(first_tokens) == [("FirstToken", "a", 1.5), ("FirstToken", "b", 1.5)]


def test_a_request_stays_in_the_queue_until_budget_is_left_for_it_even_with_a_free_slot() -> None:
    core = EngineCore(PLAIN)
    core.submit(Request("a", 150, 1), now=0.0)
    core.submit(Request("b", 10, 1), now=0.0)
    core.advance(1.0)
    assert (core.running, core.waiting) == (1, 1)
    core.advance(2.5)
    assert (core.running, core.waiting) == (2, 0)


def test_with_all_slots_taken_the_queue_is_served_in_the_order_of_arrival() -> None:
    core = EngineCore(replace(PLAIN, slots=1))
    for name in "abc":
        core.submit(Request(name, 100, 1, priority=-ord(name)), now=0.0)
    assert [event.request.id for event in run_to_end(core) if isinstance(event, Finished)] == ["a", "b", "c"]


def test_with_priority_the_lower_number_is_served_first_and_equals_in_the_order_of_arrival() -> None:
    core = EngineCore(replace(PLAIN, slots=1, policy="priority"))
    for name, priority in (("late", 5), ("first", 0), ("second", 0)):
        core.submit(Request(name, 100, 1, priority=priority), now=0.0)
    ended = [event.request.id for event in run_to_end(core) if isinstance(event, Finished)]
    assert ended == ["first", "second", "late"]


def test_priority_takes_no_slot_from_a_running_request() -> None:
    core = EngineCore(replace(PLAIN, slots=1, policy="priority"))
    core.submit(Request("ticket", 100, 5, priority=10), now=0.0)
    core.advance(0.1)
    core.submit(Request("chat", 100, 1, priority=0), now=0.1)
    # The ticket keeps its slot for 2 + 4 x 1.1 s.
    assert told(run_to_end(core))[-2:] == [("FirstToken", "chat", 8.4), ("Finished", "chat", 8.4)]


def test_a_half_prefilled_request_goes_on_before_one_of_better_priority() -> None:
    core = EngineCore(replace(PLAIN, policy="priority"))
    core.submit(Request("ticket", 200, 1, priority=10), now=0.0)
    core.advance(0.1)
    core.submit(Request("chat", 100, 1, priority=0), now=0.1)
    assert [event.request.id for event in run_to_end(core) if isinstance(event, FirstToken)] == ["ticket", "chat"]


def test_the_head_of_the_queue_waits_for_kv_room_and_holds_back_those_behind_it() -> None:
    core = EngineCore(replace(PLAIN, slots=3, kv_capacity_tokens=100))
    core.submit(Request("a", 50, 10), now=0.0)
    core.submit(Request("big", 60, 10), now=0.0)
    core.submit(Request("small", 10, 1), now=0.0)
    core.advance(1.6)
    assert (core.running, core.waiting) == (1, 2)
    finished = {event.request.id: event for event in run_to_end(core) if isinstance(event, Finished)}
    assert finished["big"].started_at == pytest.approx(finished["a"].at)
    assert finished["small"].started_at == pytest.approx(finished["a"].at)


def test_kv_usage_counts_the_tokens_that_have_been_computed() -> None:
    core = EngineCore(replace(PLAIN, kv_capacity_tokens=1000))
    core.submit(Request("a", 150, 50), now=0.0)
    core.advance(2.0)
    assert core.kv_usage == 0.1
    core.advance(3.5)  # the prompt and its first token
    assert core.kv_usage == 0.151
    run_to_end(core)
    assert core.kv_usage == 0.0


def test_a_shared_prefix_costs_nothing_once_it_has_been_prefilled() -> None:
    core = EngineCore(replace(PLAIN, prefix_cache_tokens=80))
    core.submit(Request("a", 100, 1, prefix="prompt"), now=0.0)
    core.advance(2.0)
    core.submit(Request("b", 100, 1, prefix="prompt"), now=2.0)
    core.submit(Request("c", 100, 1, prefix="other"), now=2.0)
    first = {event.request.id: event for event in run_to_end(core) if isinstance(event, FirstToken)}
    assert first["b"].cached_tokens == 80
    assert first["c"].cached_tokens == 0
    # b takes 20 tokens of the step and leaves 80 to c, which needs 20 more in the next (1.8 s later: 1 + 0.2 + ...).
    assert first["b"].at == pytest.approx(4.0)
    assert first["c"].at == pytest.approx(5.2)
    assert core.kv_usage == 0.0


def test_a_queue_that_is_full_refuses() -> None:
    core = EngineCore(replace(PLAIN, slots=1, max_queue=1))
    assert core.submit(Request("runs", 100, 1), now=0.0) is None
    assert core.submit(Request("waits", 100, 1), now=0.0) is None
    refused = core.submit(Request("refused", 100, 1), now=0.0)
    assert refused is not None
    assert refused.reason == "queue_full"
    assert {event.request.id for event in run_to_end(core)} == {"runs", "waits"}


@pytest.mark.parametrize("bound", ["context_tokens", "kv_capacity_tokens"])
def test_a_request_that_could_never_fit_is_refused(bound: str) -> None:
    core = EngineCore(PLAIN.changed({bound: 100}))
    refused = core.submit(Request("a", 91, 10), now=0.0)
    assert refused is not None
    assert refused.reason == "too_long"
    assert core.submit(Request("b", 90, 10), now=0.0) is None


def test_an_abort_frees_the_slot_at_the_next_step_boundary() -> None:
    core = EngineCore(replace(PLAIN, slots=1))
    core.submit(Request("a", 100, 50), now=0.0)
    core.submit(Request("b", 100, 1), now=0.0)
    core.advance(2.0)
    assert core.abort("a", now=2.3)
    events = run_to_end(core)
    assert told(events) == [("Aborted", "a", 3.1), ("FirstToken", "b", 5.1), ("Finished", "b", 5.1)]
    aborted = events[0]
    assert isinstance(aborted, Aborted)
    assert (aborted.prefilled_tokens, aborted.output_tokens) == (100, 2)


def test_a_request_that_comes_just_when_a_step_ends_is_part_of_the_next() -> None:
    core = EngineCore(PLAIN)
    core.submit(Request("a", 100, 50), now=0.0)
    core.advance(2.0)
    core.next_event_time()  # the jump over 49 quiet steps is planned
    core.submit(Request("b", 10, 1), now=2.0 + 3 * 1.1)
    events = [event for event in run_to_end(core) if event.request.id == "b"]
    assert told(events)[0] == ("FirstToken", "b", 6.5)


def test_an_abort_in_the_queue_is_over_at_once() -> None:
    core = EngineCore(replace(PLAIN, slots=1))
    core.submit(Request("a", 100, 1), now=0.0)
    core.submit(Request("b", 100, 1), now=0.0)
    core.advance(0.5)
    core.abort("b", now=0.5)
    assert core.waiting == 0
    assert told(run_to_end(core)) == [("Aborted", "b", 0.5), ("FirstToken", "a", 2.0), ("Finished", "a", 2.0)]


def test_an_abort_during_prefill_gives_up_the_rest_of_the_prompt() -> None:
    core = EngineCore(PLAIN)
    core.submit(Request("a", 1000, 1), now=0.0)
    core.advance(0.5)
    core.submit(Request("b", 100, 1), now=0.5)
    core.abort("a", now=0.5)
    events = run_to_end(core)
    assert told(events)[:2] == [("Aborted", "a", 2.0), ("FirstToken", "b", 4.0)]
    assert isinstance(events[0], Aborted)
    assert events[0].prefilled_tokens == 100
    assert core.kv_usage == 0.0


def test_an_engine_may_notice_an_abort_some_steps_late() -> None:
    core = EngineCore(replace(PLAIN, abort_delay_steps=2))
    core.submit(Request("a", 100, 50), now=0.0)
    core.advance(2.0)
    core.abort("a", now=2.3)
    assert told(run_to_end(core)) == [("Aborted", "a", 5.3)]


def test_a_request_that_ends_before_its_abort_is_noticed_still_counts_as_aborted() -> None:
    core = EngineCore(replace(PLAIN, abort_delay_steps=5))
    core.submit(Request("a", 100, 3), now=0.0)
    core.advance(2.0)
    core.abort("a", now=2.3)
    assert told(run_to_end(core)) == [("Aborted", "a", 4.2)]


@pytest.mark.parametrize("output_tokens", [2, 50])
def test_a_late_abort_holds_the_slot_for_as_long_as_it_is_told(output_tokens: int) -> None:
    core = EngineCore(replace(PLAIN, slots=1))
    core.submit(Request("ghost", 100, output_tokens), now=0.0)
    core.submit(Request("next", 100, 1), now=0.0)
    core.advance(2.0)
    core.abort("ghost", now=2.5, hold_seconds=10.0)
    core.advance(12.0)
    assert (core.running, core.waiting) == (1, 1)
    assert told(run_to_end(core)) == [
        ("Aborted", "ghost", 12.5),
        ("FirstToken", "next", 14.5),
        ("Finished", "next", 14.5),
    ]


def test_an_abort_of_a_request_that_has_gone_is_no_error() -> None:
    core = EngineCore(PLAIN)
    core.submit(Request("a", 100, 1), now=0.0)
    run_to_end(core)
    assert not core.abort("a", now=5.0)
    assert run_to_end(core) == []


def test_a_stall_keeps_the_slot_and_goes_on_where_it_stopped() -> None:
    core = EngineCore(replace(PLAIN, slots=1), stream_tokens=True)
    core.submit(Request("a", 100, 4, stall=Stall(after_tokens=2, seconds=10.0)), now=0.0)
    assert told(run_to_end(core)) == [
        ("FirstToken", "a", 2.0),
        ("Token", "a", 3.1),
        ("Token", "a", 14.2),
        ("Token", "a", 15.3),
        ("Finished", "a", 15.3),
    ]


def test_a_stall_before_the_first_token_keeps_it_back() -> None:
    core = EngineCore(PLAIN)
    core.submit(Request("a", 100, 2, stall=Stall(after_tokens=0, seconds=10.0)), now=0.0)
    assert told(run_to_end(core)) == [("FirstToken", "a", 13.1), ("Finished", "a", 14.2)]


def test_an_endless_stall_ends_by_abort_alone() -> None:
    core = EngineCore(PLAIN)
    core.submit(Request("a", 100, 4, stall=Stall(after_tokens=1, seconds=math.inf)), now=0.0)
    assert told(core.advance(1000.0)) == [("FirstToken", "a", 2.0)]
    assert core.next_event_time() == math.inf
    core.abort("a", now=1000.0)
    assert told(run_to_end(core)) == [("Aborted", "a", 1000.0)]


def test_an_endless_stall_does_not_hold_up_the_others() -> None:
    core = EngineCore(PLAIN)
    core.submit(Request("stalls", 50, 4, stall=Stall(after_tokens=1, seconds=math.inf)), now=0.0)
    core.submit(Request("goes on", 50, 3), now=0.0)
    assert told(core.advance(100.0))[-1] == ("Finished", "goes on", 4.2)


def test_an_engine_that_takes_no_steps_notices_an_abort_at_once_however_late_it_is() -> None:
    core = EngineCore(replace(PLAIN, abort_delay_steps=5))
    core.submit(Request("a", 100, 4, stall=Stall(after_tokens=1, seconds=math.inf)), now=0.0)
    core.advance(1000.0)
    core.abort("a", now=1000.0)
    assert told(run_to_end(core)) == [("Aborted", "a", 1000.0)]


def test_nobody_hears_from_an_aborted_request_that_the_engine_still_works_on() -> None:
    core = EngineCore(replace(PLAIN, abort_delay_steps=3), stream_tokens=True)
    core.submit(Request("decodes", 50, 50), now=0.0)
    core.submit(Request("prefills", 100, 50), now=0.0)
    assert told(core.advance(2.0)) == [("FirstToken", "decodes", 2.0)]
    core.abort("decodes", now=2.1)
    core.abort("prefills", now=2.1)
    events = run_to_end(core)
    assert {type(event) for event in events} == {Aborted}
    assert core.running == 0


def test_a_change_of_profile_counts_from_the_next_step() -> None:
    core = EngineCore(PLAIN)
    core.submit(Request("a", 100, 11), now=0.0)
    core.advance(2.0)
    core.set_profile(PLAIN.at_speed(10), now=2.5)
    # One more step of 1.1 s, then nine of 0.11 s.
    assert told(run_to_end(core)) == [("Finished", "a", 4.09)]


def test_with_fewer_slots_what_runs_goes_on_and_nothing_new_is_admitted_until_there_is_room() -> None:
    core = EngineCore(PLAIN)
    core.submit(Request("a", 10, 3), now=0.0)
    core.submit(Request("b", 200, 1), now=0.0)
    core.submit(Request("c", 10, 1), now=0.0)
    core.advance(1.5)
    core.set_profile(replace(PLAIN, slots=1, step_token_budget=2), now=1.5)
    first = {event.request.id: event for event in run_to_end(core) if isinstance(event, FirstToken)}
    ended = first["b"].at
    assert first["c"].started_at == pytest.approx(ended)


def test_the_instant_engine_is_done_at_the_moment_it_is_asked() -> None:
    core = EngineCore(EngineProfile.instant())
    for number in range(100):
        core.submit(Request(str(number), 3000, 400), now=7.0)
    assert core.next_event_time() == 7.0
    events = run_to_end(core)
    assert {event.at for event in events} == {7.0}
    assert sum(isinstance(event, Finished) for event in events) == 100


def test_classes_are_counted_by_what_runs_and_what_waits() -> None:
    core = EngineCore(replace(PLAIN, slots=1))
    core.submit(Request("a", 100, 1, klass="batch"), now=0.0)
    core.submit(Request("b", 100, 1, klass="interactive"), now=0.0)
    core.advance(0.1)
    assert core.count_by_class() == {"batch": (1, 0), "interactive": (0, 1)}


def test_the_default_profile_is_as_fast_as_it_says() -> None:
    core = EngineCore(EngineProfile())
    core.submit(Request("ticket", 500, 40), now=0.0)
    assert run_to_end(core)[-1].at == pytest.approx(0.836, abs=0.001)
    core.submit(Request("long", 30_000, 1), now=10.0)
    assert run_to_end(core)[-1].at - 10 == pytest.approx(2.1, abs=0.001)


# Random histories. Times are binary fractions, so that sums are exact and steps end just when things happen.

EXACT = EngineProfile(
    slots=3,
    step_token_budget=64,
    step_base_seconds=1 / 8,
    prefill_token_seconds=1 / 32,
    decode_sequence_seconds=1 / 32,
    kv_capacity_tokens=300,
    context_tokens=300,
)

requests = st.builds(
    Request,
    id=st.just("unnamed"),
    prompt_tokens=st.integers(1, 160),
    output_tokens=st.integers(1, 30),
    priority=st.integers(0, 2),
    klass=st.sampled_from(["batch", "interactive"]),
    prefix=st.sampled_from([None, "p", "q"]),
    stall=st.none() | st.builds(Stall, st.integers(0, 5), st.sampled_from([0.25, 1.0, 3.0])),
)
pauses = st.integers(0, 24).map(lambda number: number / 32)
submissions = st.tuples(pauses, requests)
aborts = st.tuples(pauses, st.tuples(st.integers(0, 30), st.sampled_from([0.0, 0.0, 2.0])))
looks = st.tuples(pauses, st.none())
histories = st.lists(submissions | aborts | looks, max_size=40)
profiles = st.builds(
    replace,
    st.just(EXACT),
    slots=st.integers(1, 4),
    policy=st.sampled_from(["fcfs", "priority"]),
    prefix_cache_tokens=st.sampled_from([0, 40]),
    abort_delay_steps=st.integers(0, 2),
    max_queue=st.sampled_from([None, 2]),
)
History = Sequence[tuple[float, Request | tuple[int, float] | None]]


def play(core: EngineCore, history: History) -> tuple[list[Event], list[Request]]:
    """Tell the core a history; returns all events and the requests it took."""
    now = 0.0
    events: list[Event] = []
    taken: list[Request] = []
    for pause, what in history:
        now += pause
        events += core.advance(now)
        if isinstance(what, Request):
            request = replace(what, id=str(len(taken)))
            if core.submit(request, now) is None:
                taken.append(request)
        elif what is not None:
            core.abort(str(what[0]), now, hold_seconds=what[1])
        assert core.running <= core.profile.slots
        assert 0.0 <= core.kv_usage <= 1.0
    return events + run_to_end(core), taken


def without_tokens(events: Iterable[Event]) -> list[Event]:
    return [event for event in events if not isinstance(event, Token)]


@settings(deadline=None)  # the machine may be busy
@given(profile=profiles, history=histories)
def test_jumping_over_quiet_steps_gives_the_same_as_taking_each(profile: EngineProfile, history: History) -> None:
    jumping, stepping = EngineCore(profile), EngineCore(profile, stream_tokens=True)
    jumped, _ = play(jumping, history)
    stepped, _ = play(stepping, history)
    assert sorted(jumped, key=repr) == sorted(without_tokens(stepped), key=repr)
    assert [event.at for event in jumped] == [event.at for event in without_tokens(stepped)]
    assert jumping.steps == stepping.steps


@settings(deadline=None)  # the machine may be busy
@given(profile=profiles, history=histories)
def test_every_request_ends_exactly_once_and_leaves_nothing_behind(profile: EngineProfile, history: History) -> None:
    core = EngineCore(profile, stream_tokens=True)
    events, taken = play(core, history)
    ends = Counter(event.request.id for event in events if isinstance(event, Finished | Aborted))
    assert ends == {request.id: 1 for request in taken}
    assert (core.running, core.waiting, core.kv_usage, core.count_by_class()) == (0, 0, 0.0, {})
    said = Counter(event.request.id for event in events if isinstance(event, FirstToken | Token))
    for event in events:
        if isinstance(event, Finished):
            assert said[event.request.id] == event.request.output_tokens
            assert event.arrived_at <= event.started_at < event.first_token_at <= event.at
    assert [event.at for event in events] == sorted(event.at for event in events)


@settings(deadline=None)  # the machine may be busy
@given(profile=profiles, history=histories)
def test_requests_start_in_the_order_that_the_policy_gives(profile: EngineProfile, history: History) -> None:
    core = EngineCore(profile)
    events, _ = play(core, history)
    finished = [event for event in events if isinstance(event, Finished)]
    for one in finished:
        for other in finished:
            ranks_first = profile.policy == "fcfs" or one.request.priority <= other.request.priority
            # Both were in the queue when the other one started.
            if int(one.request.id) < int(other.request.id) and ranks_first:
                assert one.started_at <= other.started_at
