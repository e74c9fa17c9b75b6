"""The judge finds what must not be, and accepts what the faults explain."""

from dataclasses import replace
from typing import Any

import pytest

from jobs.states import BatchState, JobState
from scheduler.capacity import Amount
from tests.chaos.evidence import Evidence, Incident, JobLeft
from tests.chaos.judge import AFTERMATH_SECONDS, judge, may_be_repeated, most_at_engine, repeated
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
        (
            "repeats",
            "8 answers were paid for twice",
            clean(engine=(*map(call, TEXTS), *[call("t-0")] * (SLOTS // 2 + 1))),
        ),
        (
            "paid again",
            "1 calls",
            clean(engine=(*map(call, TEXTS), call("t-0", arrived_at=BEGAN + 3.0, ended_at=BEGAN + 4))),
        ),
        ("permits", "batch still holds 1 slots", clean(permits=replace(clean().permits, batch=Amount(1, 50)))),
        ("permits", "chat still holds 2 slots", clean(permits=replace(clean().permits, interactive=Amount(2, 50)))),
        ("permits", "prompt tokens", clean(permits=replace(clean().permits, prefill_tokens=7))),
        ("capacity", "1 more than faults explain", clean(engine=(*map(call, TEXTS), *crowd(SLOTS - 2)))),
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
        pytest.param(
            clean(
                engine=(*map(call, TEXTS), *[call("t-0")] * (SLOTS + UNFLUSHED)),
                incidents=(incident("kill", "worker-1"), incident("pause", "engine")),
            ),
            id="a killed worker had answers in hand",
        ),
        pytest.param(
            clean(
                engine=(*map(call, TEXTS), *crowd(SLOTS + 4, arrived_at=BEGAN + AFTERMATH_SECONDS)),
                incidents=(incident("restart valkey", "without its data"),) * 2,
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
    ("happened", "more"),
    [
        (incident("kill", "worker-1"), SLOTS + UNFLUSHED),
        (incident("kill", "everything"), SLOTS + 2 * UNFLUSHED),
        (incident("kill", "scheduler-1"), 0),
        (incident("half-open", "worker-1 - database"), SLOTS + UNFLUSHED),
        (incident("pause", "worker-1", seconds=0.5), 0),
        (incident("pause", "worker-1", seconds=6.0), SLOTS + UNFLUSHED),
        (incident("stall", "worker-2 - database", seconds=5.0), SLOTS + UNFLUSHED),
        (incident("stall", "scheduler-1 - database", seconds=5.0), 0),
        (incident("disk full", "postgresql", seconds=3.0), SLOTS + 2 * UNFLUSHED),
        (incident("cut", "worker-1 - engine", seconds=0.0), SLOTS),
        (incident("restart valkey", "with its data"), SLOTS),
        (incident("cut", "gateway - engine", seconds=0.0), 0),
        (incident("engine says", "429"), 0),
    ],
)
def test_how_much_may_be_paid_for_twice_is_bounded_by_what_happened(happened: Incident, more: int) -> None:
    assert may_be_repeated(clean(incidents=(happened,))) == may_be_repeated(clean()) + more
