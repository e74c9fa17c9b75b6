"""The judge finds what must not be, and accepts what the faults explain."""

from dataclasses import replace
from typing import Any

import pytest

from jobs.states import BatchState, JobState
from scheduler.capacity import Amount
from tests.chaos.evidence import Evidence, Incident, JobLeft
from tests.chaos.judge import judge, may_be_repeated, most_at_engine, repeated
from tests.chaos.plan import Fault, Plan
from tests.chaos.world import ATTEMPTS, SLOTS
from tests.engine.answer import expected_label, ticket_hash
from tests.engine.log import LogRow
from tests.support.chat import NUMBER, Felt, Outcome
from tests.support.promise import UNFLUSHED
from tests.support.readings import snapshot
from tests.support.shift import LABELS

BEGAN = 1_000.0
TEXTS = {f"t-{number}": f"Where is parcel {number}?" for number in range(3)}
NOTHING = Amount(0, 0)
OTHER = {
    custom_id: next(label for label in LABELS if label != expected_label(text, LABELS))
    for custom_id, text in TEXTS.items()
}


def job(custom_id: str, **changed: Any) -> JobLeft:
    label = expected_label(TEXTS[custom_id], LABELS)
    return replace(JobLeft(custom_id, JobState.SUCCEEDED, None, BEGAN + 2.0, (label,), (None,)), **changed)


def call(custom_id: str, **changed: Any) -> LogRow:
    text = TEXTS[custom_id]
    row = LogRow(1, "id", "batch", 0, True, ticket_hash(text), 10, 40, BEGAN, status=200, outcome="ok")
    row.ended_at, row.label = BEGAN + 1.0, expected_label(text, LABELS)
    return replace(row, **changed)


def chat_call(number: int, **changed: Any) -> LogRow:
    return call("t-0", klass="interactive", ticket="chat", label=None, headers={NUMBER: str(number)}, **changed)


def felt(number: int, outcome: Outcome) -> Felt:
    return Felt(number, BEGAN, BEGAN, BEGAN + 1.0, outcome)


def incident(kind: str, target: str, began_at: float = BEGAN, seconds: float = 1.0) -> Incident:
    return Incident(Fault(0.0, kind, target, seconds), began_at, began_at + seconds)


def clean(**changed: Any) -> Evidence:
    """Three tickets, each answered once; two chats; nothing went wrong."""
    found = Evidence(
        plan=Plan(1, "postgresql", len(TEXTS), 1.0, ()),
        tickets=dict(TEXTS),
        batch_state=BatchState.COMPLETED,
        jobs=tuple(map(job, TEXTS)),
        inconsistency=None,
        engine=(*map(call, TEXTS), chat_call(0), chat_call(1)),
        chat=(felt(0, Outcome.ANSWERED), felt(1, Outcome.ANSWERED)),
        permits=replace(snapshot(), interactive=NOTHING, batch=NOTHING, reclaiming=NOTHING, prefill_tokens=0),
        incidents=(),
    )
    return found.changed(**changed)


def with_job(**changed: Any) -> Evidence:
    """The first ticket is not as it should be."""
    return clean(jobs=(job("t-0", **changed), job("t-1"), job("t-2")))


def crowd(count: int, **changed: Any) -> tuple[LogRow, ...]:
    """So many more calls at one time, for tickets of no batch."""
    return tuple(call("t-0", ticket=f"other-{number}", klass="interactive", **changed) for number in range(count))


def twice(
    *more: LogRow,
    symptoms: tuple[str | None, ...] = (None,),
    incidents: tuple[Incident, ...] = (),
    **changed: Any,
) -> Evidence:
    """The first ticket was called twice; the store has these attempts of it."""
    left = (job("t-0", symptoms=symptoms), job("t-1"), job("t-2"))
    return clean(jobs=left, engine=(*map(call, TEXTS), call("t-0", **changed), *more), incidents=incidents)


def many_twice(count: int) -> Evidence:
    """So many tickets were answered twice, the first three of them in flight when a worker was killed."""
    texts = {f"t-{number}": f"Where is parcel {number}?" for number in range(count)}
    left = [
        replace(job("t-0"), custom_id=custom_id, labels=(expected_label(text, LABELS),))
        for custom_id, text in texts.items()
    ]
    calls = [
        call("t-0", ticket=ticket_hash(text), label=expected_label(text, LABELS), arrived_at=at, ended_at=at + 0.5)
        for number, text in enumerate(texts.values())
        for at in (BEGAN + number // 3, BEGAN + 0.25 + number // 3)
    ]
    return clean(
        tickets=texts,
        jobs=tuple(left),
        engine=tuple(calls),
        incidents=(incident("kill", "worker-1", BEGAN + 0.1, 99.0),),
    )


def test_a_run_in_which_all_went_well_has_no_complaint() -> None:
    assert judge(clean()) == []
    assert repeated(clean()) == 0
    assert most_at_engine(clean()) == len(TEXTS) + 2


@pytest.mark.parametrize(
    ("rule", "words", "found"),
    [
        ("lost", "t-2 are not in the store", clean(jobs=(job("t-0"), job("t-1")))),
        ("lost", "t-0 are there more than once", clean(jobs=(*map(job, TEXTS), job("t-0")))),
        ("lost", "t-0 (running) have no final state", with_job(state=JobState.RUNNING, labels=(), symptoms=())),
        ("lost", "the batch is running", clean(batch_state=BatchState.RUNNING)),
        ("lost", "counters", clean(inconsistency="counters of batch_1")),
        ("result", "is failed and has the result", with_job(state=JobState.FAILED, symptoms=("refused",) * ATTEMPTS)),
        ("result", "0 results of 1 answers kept", with_job(labels=())),
        ("result", "2 results of 2 answers kept", with_job(labels=LABELS[:2], symptoms=(None, None))),
        ("result", "1 results of 2 answers kept", with_job(symptoms=(None, None))),
        ("result", "the engine's is", with_job(labels=(OTHER["t-0"],))),
        ("result", "the engine never said", clean(engine=(call("t-1"), call("t-2")))),
        ("failure", "nobody has asked for that", with_job(state=JobState.EXPIRED, labels=(), symptoms=())),
        (
            "failure",
            "worker_lost",
            with_job(state=JobState.FAILED, error="worker_lost: died", labels=(), symptoms=()),
        ),
        (
            "failure",
            "after disconnected",
            with_job(state=JobState.FAILED, error="disconnected: reset", labels=(), symptoms=("disconnected",)),
        ),
        (
            "failure",
            "by no fault of the engine's script",
            with_job(state=JobState.FAILED, error="refused: no", labels=(), symptoms=("refused",)),
        ),
        ("repeats", "1 answers were paid for twice, at most 0 may be", twice()),
        ("repeats", "t-0 was called 2 times, 1 more than attempts and faults say", twice(outcome="aborted")),
        # Faults that make no worker lose what it holds, or that were over before the call.
        ("repeats", "t-0 was called 2 times, 1 more", twice(incidents=(incident("pause", "worker-1", seconds=0.5),))),
        ("repeats", "t-0 was called 2 times, 1 more", twice(incidents=(incident("kill", "worker-1", BEGAN - 5.0),))),
        ("repeats", "t-0 was called 2 times, 1 more", twice(incidents=(incident("kill", "worker-1", BEGAN + 5.0),))),
        ("repeats", "t-0 was called 2 times, 1 more", twice(incidents=(incident("kill", "scheduler-1"),))),
        ("repeats", "t-0 was called 2 times, 1 more", twice(symptoms=("unreachable", None))),
        ("repeats", "t-0 was called 2 times, 1 more", twice(incidents=(incident("clock step", "worker-1"),))),
        ("repeats", "t-0 was called 2 times, 1 more", twice(incidents=(incident("disk full", "valkey", seconds=3.0),))),
        ("repeats", "t-0 was called 3 times, 1 more", twice(call("t-0"), incidents=(incident("kill", "worker-1"),))),
        ("repeats", "36 answers were paid for twice, at most 35", many_twice(UNFLUSHED + 4)),
        (
            "paid again",  # who was killed makes no calls
            "a call at 1003.00",
            twice(arrived_at=BEGAN + 3.0, ended_at=BEGAN + 4.0, incidents=(incident("kill", "worker-1", BEGAN + 2.5),)),
        ),
        (
            "paid again",
            "a call at 1003.00 for a ticket whose result was committed at 1002.00",
            clean(engine=(*map(call, TEXTS), call("t-0", arrived_at=BEGAN + 3.0, ended_at=BEGAN + 4))),
        ),
        ("permits", "batch still holds 1 slots", clean(permits=replace(clean().permits, batch=Amount(1, 50)))),
        ("permits", "chat still holds 2 slots", clean(permits=replace(clean().permits, interactive=Amount(2, 50)))),
        ("permits", "prompt tokens", clean(permits=replace(clean().permits, prefill_tokens=7))),
        ("capacity", "15 requests that no fault explains", clean(engine=(*map(call, TEXTS), *crowd(SLOTS - 2)))),
        (
            "capacity",
            "15 requests that no fault explains",
            clean(
                engine=(*map(call, TEXTS), *crowd(SLOTS + 1, arrived_at=BEGAN + 3.0, ended_at=BEGAN + 4.0)),
                incidents=(incident("restart valkey", "without its data"),),
            ),
        ),
        ("chat", "hung", clean(chat=(felt(0, Outcome.HUNG),))),
        ("chat", "was refused", clean(chat=(felt(0, Outcome.REFUSED),))),
        ("chat", "failed", clean(chat=(felt(0, Outcome.FAILED),))),
        ("surprise", "KeyError", clean(tracebacks=("gateway: KeyError: 'x'",))),
    ],
)
def test_what_must_not_be_is_complained_of(rule: str, words: str, found: Evidence) -> None:
    complaints = judge(found)
    assert [line for line in complaints if line.startswith(f"{rule}: ") and words in line], complaints


@pytest.mark.parametrize(
    "explained",
    [
        pytest.param(twice(incidents=(incident("kill", "worker-1"),)), id="a killed worker had an answer in hand"),
        pytest.param(
            twice(call("t-0"), incidents=(incident("kill", "worker-1"), incident("kill", "everything", BEGAN + 0.5))),
            id="and the next one too",
        ),
        pytest.param(
            twice(outcome="aborted", symptoms=("withdrawn", None)), id="a call was withdrawn, and the store knows it"
        ),
        pytest.param(twice(symptoms=("withdrawn", None)), id="and the engine had answered it meanwhile"),
        pytest.param(
            twice(
                arrived_at=BEGAN + 3.0, ended_at=BEGAN + 4.0, incidents=(incident("pause", "worker-1", seconds=5.0),)
            ),
            id="a zombie went on until it was told",
        ),
        pytest.param(
            clean(
                engine=(*map(call, TEXTS), *crowd(SLOTS + 4, arrived_at=BEGAN + 1.0, ended_at=BEGAN + 9.0)),
                incidents=(incident("restart valkey", "without its data"),),
            ),
            id="a new ledger did not know what was in flight",
        ),
        pytest.param(
            clean(engine=(*map(call, TEXTS), *crowd(SLOTS, outcome="aborted"))), id="more was being reclaimed"
        ),
        pytest.param(
            clean(chat=(felt(0, Outcome.FAILED),), incidents=(incident("kill", "gateway"),)),
            id="nobody was at the door",
        ),
        pytest.param(
            clean(chat=(felt(0, Outcome.FAILED),), engine=(*map(call, TEXTS), chat_call(0, fault="500"))),
            id="the engine's own word",
        ),
        pytest.param(
            clean(chat=(felt(0, Outcome.REFUSED),), incidents=(incident("pause", "engine", BEGAN - 5.0, 4.0),)),
            id="chat had piled up before an engine that stood still",
        ),
    ],
)
def test_what_a_fault_explains_is_no_complaint(explained: Evidence) -> None:
    assert judge(explained) == []


def test_an_answer_is_repeated_where_the_engine_gave_it_and_the_store_has_never_heard_of_it() -> None:
    assert repeated(twice()) == 1
    assert repeated(twice(outcome="aborted")) == 0
    assert repeated(twice(symptoms=("withdrawn", None))) == 0
    assert repeated(twice(symptoms=("unreachable", None))) == 1


def test_a_ticket_may_fail_after_all_of_its_tries_or_by_the_engines_word() -> None:
    tried = with_job(
        state=JobState.FAILED, error="server_error: 500", labels=(), symptoms=("server_error",) * ATTEMPTS
    ).changed(engine=(call("t-1"), call("t-2")))
    refused = with_job(state=JobState.FAILED, error="refused: 400", labels=(), symptoms=("refused",)).changed(
        engine=(call("t-0", fault="400", outcome="fault:400", label=None), call("t-1"), call("t-2"))
    )
    assert judge(tried) == []
    assert judge(refused) == []


@pytest.mark.parametrize(
    ("happened", "workers"),
    [
        (incident("kill", "worker-1"), 1),
        (incident("kill", "everything"), 2),
        (incident("kill", "scheduler-1"), None),
        (incident("kill", "engine"), None),
        (incident("kill", "postgresql", seconds=0.5), None),
        (incident("kill", "postgresql", seconds=2.0), 2),
        (incident("half-open", "worker-1 - database"), 2),
        (incident("pause", "worker-1", seconds=0.5), None),
        (incident("pause", "worker-1", seconds=6.0), 2),
        (incident("stall", "worker-2 - database", seconds=5.0), 2),
        (incident("stall", "scheduler-1 - database", seconds=5.0), 2),
        (incident("refuse", "worker-1 - database", seconds=3.0), 1),
        (incident("refuse", "scheduler-1 - database", seconds=3.0), None),
        (incident("pause", "everything", seconds=3.0), 2),
        (incident("pause", "gateway", seconds=6.0), None),
        (incident("disk full", "postgresql", seconds=3.0), 2),
        (incident("disk full", "valkey", seconds=3.0), None),
        (incident("cut", "worker-1 - engine", seconds=0.0), None),
        (incident("restart valkey", "with its data"), None),
        (incident("cut", "gateway - engine", seconds=0.0), None),
        (incident("clock step", "worker-1"), None),
        (incident("engine says", "429"), None),
    ],
)
def test_how_much_may_be_paid_for_twice_is_bounded_by_what_happened(happened: Incident, workers: int | None) -> None:
    in_flight = len(TEXTS)
    most = 0 if workers is None else in_flight + UNFLUSHED * workers
    assert may_be_repeated(clean(incidents=(happened,))) == most
    later = clean(incidents=(replace(happened, began_at=BEGAN + 9.0, over_at=BEGAN + 9.0 + happened.fault.seconds),))
    assert may_be_repeated(later) == most - (in_flight if workers else 0)
