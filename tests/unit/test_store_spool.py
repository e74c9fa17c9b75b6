"""A source read to its end, before the database is touched."""

import pytest

from jobs.store.spool import AT_ONCE, ID_CHARACTERS, KEPT_REJECTIONS, Spool
from jobs.ticket import Rejection, Ticket


def keys(*tickets: Ticket, spec_hash: str = "spec", model: str = "model") -> list[str]:
    with Spool(spec_hash, model) as spool:
        spool.fill(tickets)
        return [row.answer_key for chunk in spool.chunks(10) for row in chunk]


def test_the_order_of_the_source_is_kept_in_chunks() -> None:
    with Spool("spec", "model") as spool:
        spool.fill(Ticket(f"t-{10 - n}", "", "text") for n in range(10))
        chunks = [[row.custom_id for row in chunk] for chunk in spool.chunks(4)]

    assert chunks == [["t-10", "t-9", "t-8", "t-7"], ["t-6", "t-5", "t-4", "t-3"], ["t-2", "t-1"]]


def test_equal_texts_have_one_key_whatever_their_ids() -> None:
    first, second = keys(Ticket("a", "subject", "body", line=1), Ticket("b", "subject", "body", line=2, priority=3))

    assert first == second


@pytest.mark.parametrize(
    "other", [Ticket("a", "subject", "bodyx"), Ticket("a", "subjectb", "ody"), Ticket("a", "", "subjectbody")]
)
def test_another_text_has_another_key(other: Ticket) -> None:
    assert keys(other) != keys(Ticket("a", "subject", "body"))


def test_another_spec_or_model_has_another_key() -> None:
    ticket = Ticket("a", "subject", "body")

    assert len({keys(ticket)[0], keys(ticket, spec_hash="other")[0], keys(ticket, model="other")[0]}) == 3


def test_all_rejections_are_counted_and_the_first_are_listed() -> None:
    with Spool("spec", "model") as spool:
        spool.fill(Rejection(line, "empty body") for line in range(KEPT_REJECTIONS + 5))

        assert (spool.rejected, len(spool.rejections)) == (KEPT_REJECTIONS + 5, KEPT_REJECTIONS)
        assert (spool.tickets, list(spool.chunks(10))) == (0, [])


@pytest.mark.parametrize("far", [1, AT_ONCE - 1, AT_ONCE, 3 * AT_ONCE + 7])
def test_an_id_that_comes_again_is_found_however_far_behind_and_all_rejections_stay_in_order(far: int) -> None:
    """`far` others stand between the two: they may go into the file in one write, or in several."""
    rows: list[Ticket | Rejection] = [Ticket("twice", "", "text", line=1)]
    rows += [Ticket(f"t-{n}", "", "text", line=n) for n in range(2, far + 2)]
    rows += [Ticket("twice", "", "text", line=far + 2), Rejection(far + 3, "empty body")]
    rows += [Ticket("last", "", "text", line=far + 4), Ticket("twice", "", "other", line=far + 5)]
    rows += [Ticket("x" * (ID_CHARACTERS + 1), "", "text", line=far + 6), Ticket("last", "", "text", line=far + 7)]

    with Spool("spec", "model") as spool:
        spool.fill(rows)
        ids = [row.custom_id for chunk in spool.chunks(1_000) for row in chunk]

    assert ids == ["twice", *(f"t-{n}" for n in range(2, far + 2)), "last"]
    assert (spool.tickets, spool.rejected) == (far + 2, 5)
    assert [(row.line - far, row.reason.split(" (")[0]) for row in spool.rejections] == [
        (2, "duplicate id, first at line 1 with the same text"),
        (3, "empty body"),
        (5, "duplicate id, first at line 1 with another text"),
        (6, f"id is longer than {ID_CHARACTERS} characters"),
        (7, f"duplicate id, first at line {far + 4} with the same text"),
    ]
