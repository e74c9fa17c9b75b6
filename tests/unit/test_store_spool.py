"""A source read to its end, before the database is touched."""

import pytest

from jobs.store.spool import KEPT_REJECTIONS, Spool
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
