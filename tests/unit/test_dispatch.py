"""How many tasks are queued, and for which batch."""

from dataclasses import replace

import pytest

from jobs.store.batches import BatchWork
from jobs.store.services import Service
from scheduler.dispatch import Task, dispatch
from scheduler.turns import at_turn
from tests.support.open_batch import WORK
from tests.support.store import START

A, A2 = replace(WORK, id="a"), replace(WORK, id="a2")
B = replace(WORK, id="b", pools=("deep",))
BOTH = replace(WORK, id="both", pools=("gpu", "deep"))


class Queue(list[Task]):
    """Where nobody takes anything out."""

    def publish(self, task: Task) -> None:
        self.append(task)


def worker(batch: str | None) -> Service:
    return Service("worker", f"on {batch}", "here", 1, START, START, {"batch": batch})


def queued(runnable: list[BatchWork], *at_work: str | None, before: int = 0) -> list[str]:
    queue = Queue([Task("before", 4, 30.0)] * before)
    count = dispatch(runnable, [worker(batch) for batch in at_work], queue, at_once=4, seconds=30.0)
    assert count == len(queue) - before
    return [task.batch_id for task in queue[before:]]


@pytest.mark.parametrize(
    ("in_order", "expected"),
    [
        ([A, A2], [A]),
        ([A, B], [A, B]),
        ([B, A, A2], [B, A]),
        ([A, BOTH, B], [A, B]),
        ([BOTH, A, B], [BOTH]),
        ([], []),
    ],
)
def test_of_those_that_share_a_pool_the_first_is_at_turn(in_order: list[BatchWork], expected: list[BatchWork]) -> None:
    assert at_turn(in_order) == expected


class TestOneLine:
    def test_one_task_for_every_idle_worker_and_one_ahead(self) -> None:
        assert queued([A, A2], None, None, None) == ["a"] * 3
        assert queued([A, A2], "a", None) == ["a"]
        assert queued([A, A2], "a", "a") == ["a"]
        assert queued([A, A2], "a", "a", before=1) == []
        assert queued([A]) == ["a"], "workers may not have beaten yet"
        assert queued([]) == []


class TestSeveralPools:
    def test_the_workers_are_shared(self) -> None:
        assert queued([A, B], None, None) == ["a", "b"]
        assert queued([A, B], None, None, None) == ["a", "b", "a"]
        assert queued([A, A2, B], "a", None) == ["b"]

    def test_the_next_task_goes_where_fewer_are_at_work(self) -> None:
        assert queued([A, B], "a", "a") == ["b"]
        assert queued([A, B], "b", "b") == ["a"]
        assert queued([A, B], "a", "b") == ["a"]

    def test_with_fewer_workers_the_nearest_deadlines_are_served(self) -> None:
        assert queued([A, B], None) == ["a"]
        assert queued([A, B], "b") == ["a"]
        assert queued([A, B]) == ["a"]
