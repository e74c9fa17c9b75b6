"""What an error means, row by row: the design's table through executor, ledger and store, over real HTTP.

Faults are carried by the tickets that meet them, and beside them stand tickets that meet none: one bad ticket never
stops a batch.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest

from jobs.spec import ClassificationSpec
from jobs.states import BatchState
from jobs.store import events
from jobs.store.database import Database
from scheduler.capacity import Amount
from scheduler.permit import Ask, Reason, Refusal
from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.answer import ticket_hash
from tests.engine.faults import KINDS, Fault, Rule
from tests.engine.process import EngineThread
from tests.support.aftermath import Aftermath, aftermath, answered, calls
from tests.support.redis_watch import RedisWatch
from tests.support.shift import POLICY, POOL, SPEC, Shift, at_work, play, pool_settings, with_spec
from tests.support.skipping import RunningClock
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until_async
from tickets_batch.cli.logs import CHATTY
from tickets_batch.settings import Secret
from workers.client import RAW_CHARS

pytest_plugins = ["tests.support.skipping_fixtures"]

GOOD = [f"Where is parcel {number}?" for number in range(8)]
LONG_ANSWERS = ClassificationSpec(labels=SPEC.labels, max_output_tokens=400)


@pytest.fixture
def engine() -> Iterator[EngineThread]:
    with EngineThread(EngineProfile.instant()) as running:
        yield running


def finished(
    database: Database, valkey: ValkeyServer, engine: EngineThread, bad: Sequence[str], **changes: Any
) -> Aftermath:
    """The batch of these tickets, followed by the good ones, after its end; the good ones have come out right."""
    texts = [*bad, *GOOD]
    left: list[Aftermath] = []

    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, texts, **changes) as shift:
            await shift.finish()
            await wait_until_async(lambda: _holds_nothing(shift), "all permits to come back")
            left.append(aftermath(database, shift.batch_id))

    play(scene)
    seen = left[0]
    assert seen.batch.state is BatchState.COMPLETED
    good = list(seen.rows.values())[len(bad) :]
    assert [(row.state.value, row.attempts, row.error) for row in good] == [("succeeded", 1, None)] * len(GOOD)
    assert calls(engine, GOOD) == answered(engine, GOOD) == [1] * len(GOOD)
    return seen


async def drive_and_write(*shifts: Shift) -> None:
    """One task for each worker, until nothing is left to do or to write."""
    await asyncio.gather(*(shift.drive() for shift in shifts))
    await wait_until_async(lambda: shifts[0].batch().running == 0, "everything to be written")


async def drive_until_blocked(*shifts: Shift) -> None:
    async with asyncio.timeout(20):
        while shifts[0].batch().blocked is None:
            await drive_and_write(*shifts)


async def _holds_nothing(shift: Shift) -> bool:
    return (await shift.ledger.snapshot()).batch == Amount()


# 429, 503: again later, at no cost; and not too often.


def test_an_overload_is_tried_again_and_spends_no_attempt(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    bad = ["[[fault:429 times=2]]", "[[fault:503 times=1]]", "[[fault:429 times=1 retry_after=0.5]] asks for rest"]
    seen = finished(database, valkey, engine, bad)
    assert seen.states == {"succeeded": len(bad) + len(GOOD)}
    assert seen.spent == [1] * (len(bad) + len(GOOD))
    assert [seen.symptoms[f"t-{n}"] for n in range(3)] == [
        ["overloaded", "overloaded", None],
        ["overloaded", None],
        ["overloaded", None],
    ]
    refused, again = (row for row in engine.log() if row.ticket == ticket_hash(bad[2]))
    assert refused.ended_at is not None
    assert again.arrived_at - refused.ended_at >= 0.5


@pytest.mark.long
def test_an_engine_that_refuses_for_a_while_is_left_alone_by_every_process(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    engine.set_profile(step_base_seconds=0.004)
    texts = [f"Where is parcel {number}?" for number in range(500)]

    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, texts) as shift:
            finishing = asyncio.create_task(shift.finish())
            await wait_until_async(lambda: shift.batch().succeeded > 100, "the work to be under way")
            engine.set_faults(Rule(Fault("503")))
            await wait_until_async(lambda: is_paused(shift), "the pool to be paused")
            await wait_until_async(lambda: _holds_nothing(shift), "every permit to be dropped")
            other_process = await shift.endpoint.gate.ask(Ask(100, 24))
            assert isinstance(other_process, Refusal)
            assert other_process.reason is Reason.PAUSED
            refused = len(engine.log())
            await wait_until_async(lambda: len(engine.log()) > refused, "a probe")
            engine.set_faults()
            await finishing
            seen = aftermath(database, shift.batch_id)
            assert seen.states == {"succeeded": 500}
            assert set(seen.spent) == {1}
            assert answered(engine, texts) == [1] * 500

    async def is_paused(shift: Shift) -> bool:
        return (await shift.ledger.snapshot()).paused_seconds > 0

    play(scene)
    refused = sum(row.status == 503 for row in engine.log())
    print(f"{refused} of {len(engine.log())} calls were refused")
    assert refused < len(engine.log()) / 10


# Timeout, reset, 5xx: again after a rest, for as long as there are attempts.


def test_a_failing_call_spends_an_attempt_until_there_are_none_left(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    kinds = ["500", "drop_before_headers", "drop_mid_stream after=3", "stall after=2"]
    bad = [f"[[fault:{kind}]]" for kind in kinds] + [f"[[fault:{kind} times=2]]" for kind in kinds]
    seen = finished(database, valkey, engine, bad, pool=pool_settings(engine.base_url, request_timeout_seconds=0.6))
    errors = [row.error for row in seen.rows.values()][: len(kinds)]
    assert errors == [
        "server_error: HTTP 500: the engine failed (EngineCore encountered an issue.)",
        "disconnected: the connection broke",
        "disconnected: the connection broke",
        "timed_out: not done within 0.6 s, 2 tokens in",
    ]
    assert seen.states == {"failed": len(kinds), "succeeded": len(kinds) + len(GOOD)}
    assert seen.spent == [POLICY.attempts] * 2 * len(kinds) + [1] * len(GOOD)
    assert calls(engine, bad) == [POLICY.attempts] * len(bad)
    assert [seen.symptoms[f"t-{n}"] for n in range(len(kinds), len(kinds) * 2)] == [
        ["server_error", "server_error", None],
        ["disconnected", "disconnected", None],
        ["disconnected", "disconnected", None],
        ["timed_out", "timed_out", None],
    ]


def test_a_broken_endpoint_burns_no_attempts_and_the_batch_goes_on_when_it_works(
    skipping_database: Database, running_clock: RunningClock, valkey: ValkeyServer, engine: EngineThread
) -> None:
    texts = [f"Where is parcel {number}?" for number in range(60)]
    engine.set_faults(Rule(Fault("500")))

    async def scene() -> None:
        async with at_work(skipping_database, valkey, engine.base_url, texts) as shift:
            await drive_until_blocked(shift)
            first_wave = len(engine.log())
            assert first_wave <= 10 + POOL.most_batch.slots
            assert "the engine failed" in str(shift.batch().blocked)
            for wait_seconds in (5.1, 10.1, 20.1):
                running_clock.skip(wait_seconds)
                await drive_and_write(shift)
            assert len(engine.log()) == first_wave + 3
            broken = aftermath(skipping_database, shift.batch_id)
            assert broken.states == {"pending": 60}
            assert sum(broken.spent) < 10
            engine.set_faults()
            running_clock.skip(40.1)
            await shift.finish()
            seen = aftermath(skipping_database, shift.batch_id)
            assert seen.states == {"succeeded": 60}
            assert seen.batch.blocked is None
            assert max(seen.spent) <= 2
            assert kinds_of_events(skipping_database, shift.batch_id) >= ["blocked", "unblocked"]
            assert answered(engine, texts) == [1] * 60

    play(scene)


# No answer, or none that is a label: again, then failed with what the model said.


def test_what_is_no_label_is_tried_again_and_fails_with_the_raw_text(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    babble = "x" * 3_000
    kinds = {
        "cut_off": "invalid_output: cut short after ",
        "prose": "invalid_output: not the JSON that was asked for",
        "wrong_label": "invalid_output: a label outside the set",
        f"wrong_label label={babble}": "invalid_output: a label outside the set",
        "empty": "invalid_output: empty content, finish_reason=stop",
        "reasoning_only": "invalid_output: empty content, finish_reason=stop, reasoning only",
        "white_space": "invalid_output: endless white space, cut after ",
    }
    bad = [f"[[fault:{kind}]]" for kind in kinds] + [f"[[fault:{kind} times=1]]" for kind in kinds]
    seen = finished(database, valkey, engine, bad, **with_spec(LONG_ANSWERS))
    count = len(kinds)
    rows = list(seen.rows.values())
    for row, expected in zip(rows[:count], kinds.values(), strict=True):
        assert str(row.error).startswith(expected)
    assert seen.states == {"failed": count, "succeeded": count + len(GOOD)}
    assert seen.spent == [POLICY.attempts] * count + [2] * count + [1] * len(GOOD)
    assert calls(engine, bad) == [POLICY.attempts] * count + [2] * count
    raw = [seen.raw[f"t-{n}"] for n in range(len(bad))]
    assert str(raw[0]).startswith('{"label"')
    assert raw[1] is not None
    assert "I would say" in raw[1]
    assert raw[2] == '{"label": "not one of the labels"}'
    assert raw[3] == f'{{"label": "{babble}'[:RAW_CHARS]
    assert raw[4:6] == [None, None]
    assert raw[6] is not None
    assert raw[6].strip() == "{"
    assert raw[count:] == [None] * count


# Too long: shortened once.


def test_a_ticket_longer_than_the_context_is_shortened_once(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    engine.set_profile(context_tokens=2_000)
    in_letters, in_thousands_of_signs = "A long complaint. " * 800, "件" * 12_000
    refused_once = "[[fault:context_too_long shape=openai times=1]]"
    seen = finished(database, valkey, engine, [in_letters, in_thousands_of_signs, refused_once])
    shortened, hopeless, openai_shape = list(seen.rows.values())[:3]
    assert (shortened.state.value, shortened.truncated, shortened.attempts) == ("succeeded", True, 1)
    assert (openai_shape.state.value, openai_shape.truncated, openai_shape.attempts) == ("succeeded", True, 1)
    assert (hopeless.state.value, hopeless.truncated) == ("failed", True)
    assert str(hopeless.error).startswith("too_long: HTTP 400: longer than the engine's context")
    assert [seen.symptoms[f"t-{n}"] for n in range(3)] == [
        ["too_long", None],
        ["too_long", "too_long"],
        ["too_long", None],
    ]


# What the engine or a filter refuses for its own sake: failed, and nobody else suffers.


def test_what_is_refused_for_its_own_sake_fails_without_another_try(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    bad = [f"[[fault:{kind}]]" for kind in ("400", "content_filter", "content_filter_answer")]
    seen = finished(database, valkey, engine, bad)
    assert [row.error for row in seen.rows.values()][:3] == [
        "refused: HTTP 400: the engine refuses this request (The request could not be understood.)",
        "refused: HTTP 400: stopped by a content filter (The prompt was blocked by the content management policy.)",
        "refused: a content filter stopped the answer",
    ]
    assert seen.states == {"failed": 3, "succeeded": len(GOOD)}
    assert seen.spent == [1] * (3 + len(GOOD))
    assert calls(engine, bad) == [1, 1, 1]


# A wrong key, a wrong model, a schema that the engine does not know: nobody can succeed, so the batch waits.


def kinds_of_events(db: Database, batch_id: str) -> list[str]:
    return [event.kind for event in reversed(events.recent(db, batch_id))]


def test_a_wrong_key_blocks_the_batch_until_the_key_is_right(
    skipping_database: Database,
    running_clock: RunningClock,
    valkey: ValkeyServer,
    engine: EngineThread,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("THE_KEY", "the-key")
    engine.change_settings(api_key="another")
    pool = pool_settings(engine.base_url, api_key=Secret(env="THE_KEY"))
    texts = [f"Where is parcel {number}?" for number in range(100)]

    async def scene() -> None:
        async with (
            at_work(skipping_database, valkey, engine.base_url, texts, pool=pool) as first,
            at_work(skipping_database, valkey, "", [], pool=pool, worker="worker-2", batch_id=first.batch_id) as second,
        ):
            await drive_until_blocked(first, second)
            first_wave = len(engine.log())
            assert first_wave <= 2 * POOL.most_batch.slots
            assert str(first.batch().blocked).startswith(
                "HTTP 401: the engine wants a valid key: set the pool's api_key, or OPENAI_API_KEY"
            )
            blocked = aftermath(skipping_database, first.batch_id)
            assert blocked.states == {"pending": 100}
            assert set(blocked.spent) == {0}
            probes = []
            for wait_seconds in (0.0, 5.1, 5.1, 5.0, 20.1):
                running_clock.skip(wait_seconds)
                await drive_and_write(first, second)
                probes.append(len(engine.log()) - first_wave)
            assert [after - before for before, after in pairwise([0, *probes])] == [0, 1, 0, 1, 1]
            engine.change_settings(api_key="the-key")
            running_clock.skip(40.1)
            await asyncio.gather(first.finish(), second.finish())
            seen = aftermath(skipping_database, first.batch_id)
            assert seen.states == {"succeeded": 100}
            assert set(seen.spent) == {1}
            assert seen.batch.blocked is None
            assert kinds_of_events(skipping_database, first.batch_id)[-3:] == ["blocked", "unblocked", "completed"]
            assert answered(engine, texts) == [1] * 100

    play(scene)


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("403", "HTTP 403: the pool's api_key may not use this model"),
        (
            "404",
            "HTTP 404: the engine does not serve this model: set the pool's model, or --model, to one that it lists",
        ),
        ("schema_refused", "HTTP 400: the engine refuses the schema of the answer (response_format)"),
    ],
    ids=["may-not", "no-model", "no-schema"],
)
def test_what_no_ticket_can_help_blocks_the_batch_until_it_is_mended(
    kind: str,
    advice: str,
    skipping_database: Database,
    running_clock: RunningClock,
    valkey: ValkeyServer,
    engine: EngineThread,
) -> None:
    engine.set_faults(Rule(Fault(kind)))
    texts = [f"Where is parcel {number}?" for number in range(60)]

    async def scene() -> None:
        async with at_work(skipping_database, valkey, engine.base_url, texts) as shift:
            await drive_until_blocked(shift)
            assert len(engine.log()) <= POOL.most_batch.slots
            assert str(shift.batch().blocked).startswith(advice)
            engine.set_faults()
            running_clock.skip(5.1)
            await shift.finish()
            seen = aftermath(skipping_database, shift.batch_id)
            assert seen.states == {"succeeded": 60}
            assert set(seen.spent) == {1}
            assert answered(engine, texts) == [1] * 60

    play(scene)


# Whatever goes wrong, what a ticket says stays between the database and the engine.


def test_no_ticket_s_text_is_in_redis_or_in_the_log(
    database: Database, valkey: ValkeyServer, engine: EngineThread, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in CHATTY:
        caplog.set_level(logging.INFO, logger=name)  # as with --debug
    secret = "my parcel to 12 Rosemary Lane"
    kinds = sorted(KINDS - {"stall", "late_abort", "401", "403", "404", "schema_refused"})
    bad = [f"Where is {secret}? [[fault:{kind} times=1]]" for kind in kinds]
    with RedisWatch(valkey.url) as watch:
        finished(database, valkey, engine, bad)
        keys = watch.keys()
        heard = watch.heard
    assert b"EVALSHA" in heard.upper()
    assert {key.name for key in keys} >= {"tickets-batch:{gpu}:epoch", "tickets-batch:{gpu}:permits"}
    for place in (heard, *(key.content for key in keys), caplog.text.encode()):
        assert b"Rosemary" not in place
