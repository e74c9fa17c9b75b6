"""Work in tokens: what the prompts share, once a job, and the tickets' own texts."""

import pytest

from jobs.prompt import build_messages
from jobs.spec import ClassificationSpec
from scheduler.work_unit import WorkUnit

SHORT = ClassificationSpec(labels={"a": "one", "b": "two"}, max_output_tokens=32)
LONG = ClassificationSpec(labels={"a": "one", "b": "two"}, instructions="x" * 4_000, max_output_tokens=32)


def test_a_job_costs_its_shared_prompt_its_answer_and_its_own_text() -> None:
    shared = sum(len(message["content"].encode()) for message in build_messages(SHORT, "", ""))
    assert WorkUnit.of(SHORT).tokens(3, 400) == 3 * (shared / 4 + 16) + 100


def test_nothing_left_is_no_work() -> None:
    assert WorkUnit.of(SHORT).tokens(0, 0) == 0


def test_long_instructions_are_work_for_every_job() -> None:
    more = WorkUnit.of(LONG).tokens(10, 0) - WorkUnit.of(SHORT).tokens(10, 0)
    assert more == pytest.approx(10_000, rel=0.01)
