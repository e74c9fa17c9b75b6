"""When an engine is said to cut prompts."""

import random

from workers.cutting import BELIEVED, Cutting

CONTEXT = 4_096


def counted(size: int, context: int = CONTEXT) -> int:
    return min(size // 4, context)


def test_texts_of_all_sizes_beyond_a_length_are_counted_alike() -> None:
    cutting = Cutting()
    sizes = [1_000, 20_000, 40_000, 2_000, 60_000, 30_000, 80_000]
    told = [size for size in sizes if cutting.heard(size, counted(size))]
    assert told == [30_000], "once, at the third that is clearly larger than the smallest"
    assert cutting.most_tokens == CONTEXT


def test_an_engine_that_reads_all_is_never_said_to_cut() -> None:
    cutting, random_ = Cutting(), random.Random(1)
    for _ in range(5_000):
        words = random_.randint(1, 400)  # each of one token, and of one to twelve letters
        assert not cutting.heard(sum(random_.randint(2, 13) for _ in range(words)), words)


def test_tickets_of_one_size_say_nothing() -> None:
    cutting = Cutting()
    assert not any(cutting.heard(1_000 + n % 100, 250) for n in range(100))


def test_a_larger_count_begins_anew() -> None:
    cutting = Cutting()
    for _ in range(BELIEVED - 1):
        assert not cutting.heard(8_000, 1_000)
        assert not cutting.heard(16_000, 1_000)
    assert not cutting.heard(20_000, 5_000)
    assert not cutting.heard(40_000, 5_000)
