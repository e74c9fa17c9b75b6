"""What the demo says in the end: what the chat felt, and what the batch got."""

from tickets_batch.demo.chat import Answer
from tickets_batch.demo.felt import Got, batch_in_words, chat_in_words

REFUSED = Answer(0.0, None, 0.3, is_refused=True)
FAILED = Answer(0.0, None, 0.3)


def answers(*ttfts_seconds: float) -> list[Answer]:
    return [Answer(0.0, seconds, seconds + 1.0) for seconds in ttfts_seconds]


def test_the_waiting_for_the_first_word_is_told_alone_and_beside_the_batch() -> None:
    alone, beside = answers(0.1, 0.2, 0.3), answers(0.2, 0.3, 0.4, 0.9)
    assert list(chat_in_words(alone, [*beside, REFUSED])) == [
        "What the chat felt: from the question to the first word of the answer",
        "               half within  19 of 20 within  questions  refused",
        "  alone             0.20 s           0.30 s          3        0",
        "  beside batch      0.30 s           0.90 s          5        1",
    ]


def test_of_nothing_nothing_is_said() -> None:
    assert list(chat_in_words([], [REFUSED]))[2:] == [
        "  alone                  -                -          0        0",
        "  beside batch           -                -          1        1",
    ]


def test_what_failed_is_neither_refused_nor_left_out() -> None:
    *_, beside, last = chat_in_words(answers(0.1), [*answers(0.1), FAILED])
    assert beside.split()[-2:] == ["2", "0"]
    assert last == "  1 question got no answer at all"


def test_what_the_batch_got() -> None:
    got = Got(tickets=64, seconds=48.0, at_floor_seconds=12.4, asked_back=2)
    assert list(batch_in_words(got, slots=4, most_slots=2, floor_slots=1)) == [
        "What the batch got: what the chat left",
        "  64 tickets in 48 s, 80 a minute",
        "  up to 2 of 4 slots at a time",
        "  only 1, its floor, for 12 s: the chat needed the rest",
        "  2 tickets asked back in the middle and done again: a question came first",
    ]


def test_a_batch_that_has_not_begun_has_no_rate() -> None:
    assert Got(tickets=0, seconds=0.0, at_floor_seconds=0.0, asked_back=0).per_minute == 0.0
