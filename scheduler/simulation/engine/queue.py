"""The requests that wait for a slot, in the order in which they will get one."""

from heapq import heappop, heappush

from scheduler.simulation.engine.sequence import Sequence


class WaitingQueue:
    """By rank, and within a rank by arrival; one that is removed leaves its entry behind until it comes up."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Sequence]] = []
        self.count = 0

    def push(self, rank: int, sequence: Sequence) -> None:
        heappush(self._heap, (rank, sequence.order, sequence))
        self.count += 1

    def remove(self, sequence: Sequence) -> None:
        """Take out one that is being aborted."""
        assert sequence.aborting
        self.count -= 1

    def head(self) -> Sequence | None:
        heap = self._heap
        while heap and heap[0][2].aborting:
            heappop(heap)
        return heap[0][2] if heap else None

    def pop_head(self) -> None:
        """Take out what `head` has just returned."""
        heappop(self._heap)
        self.count -= 1
