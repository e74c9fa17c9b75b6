"""The demo's chat on a real server: what counts as the first word, as refused, as failed, and that it never waits."""

import time

import pytest

from tests.engine.faults import Fault, Rule
from tests.engine.process import EngineThread
from tests.support.wait import wait_until
from tickets_batch.demo.chat import OUTPUT_TOKENS, QUESTIONS, Chat, ask, messages_of
from tickets_batch.local.ports import free_port

pytest_plugins = ["tests.support.engine_fixtures"]

MODEL = "test-model"
QUESTION = messages_of(QUESTIONS[0])
EVERY_SECONDS = 0.05


def test_the_first_word_counts_from_the_question(slow_engine: EngineThread) -> None:
    asked_at = time.monotonic()
    answer = ask(slow_engine.base_url, MODEL, QUESTION)
    assert answer.ttft_seconds is not None
    assert asked_at <= answer.asked_at
    assert 0.0 < answer.ttft_seconds < answer.seconds
    [row] = slow_engine.log()
    assert row.output_tokens == OUTPUT_TOKENS
    assert row.outcome == "ok"


def test_a_slow_first_token_is_not_an_early_word(instant_engine: EngineThread) -> None:
    instant_engine.set_faults(Rule(Fault("slow_first_token", seconds=0.5)))
    answer = ask(instant_engine.base_url, MODEL, QUESTION)
    assert answer.ttft_seconds is not None
    assert answer.ttft_seconds >= 0.5


def test_who_is_told_to_come_again_is_refused(instant_engine: EngineThread) -> None:
    instant_engine.set_faults(Rule(Fault("429")))
    answer = ask(instant_engine.base_url, MODEL, QUESTION)
    assert (answer.ttft_seconds, answer.is_refused) == (None, True)


@pytest.mark.parametrize("kind", ["500", "drop_before_headers"])
def test_what_fails_is_not_refused(instant_engine: EngineThread, kind: str) -> None:
    instant_engine.set_faults(Rule(Fault(kind)))
    answer = ask(instant_engine.base_url, MODEL, QUESTION)
    assert (answer.ttft_seconds, answer.is_refused) == (None, False)


def test_nobody_there_is_an_answer_too() -> None:
    answer = ask(f"http://127.0.0.1:{free_port()}/v1", MODEL, QUESTION)
    assert (answer.ttft_seconds, answer.is_refused) == (None, False)


def test_people_come_whether_or_not_the_others_are_answered(instant_engine: EngineThread) -> None:
    instant_engine.freeze()
    with Chat(instant_engine.base_url, MODEL, every_seconds=EVERY_SECONDS, seed=1) as chat:
        wait_until(lambda: instant_engine.busy() >= 5, "five people to wait at once")
        assert chat.answers() == []
        instant_engine.thaw()
    assert len(chat.answers()) == len(instant_engine.log())
    assert all(answer.ttft_seconds for answer in chat.answers())


def test_answers_are_told_by_when_they_were_asked(instant_engine: EngineThread) -> None:
    with Chat(instant_engine.base_url, MODEL, every_seconds=EVERY_SECONDS, seed=1) as chat:
        wait_until(lambda: len(chat.answers()) >= 3, "three answers")
        between = time.monotonic()
        wait_until(lambda: chat.answers(since=between), "one more")
    before, after = chat.answers(until=between), chat.answers(since=between)
    assert before
    assert sorted(before + after, key=lambda a: a.asked_at) == sorted(chat.answers(), key=lambda a: a.asked_at)
