"""What is known of a submit before it is made: which batch it would top up, and why it would be refused."""

from datetime import date

import pytest

from jobs.store import submissions
from jobs.store.database import Database
from jobs.store.standing import Standings
from jobs.ticket import Standing
from tests.support.store import claim, request, submit, succeed, ticket
from tickets_batch.errors import UserError


def test_a_changed_spec_is_refused_with_what_has_changed(store: Database) -> None:
    batch = submit(store, 1).batch_id
    hashes = "another form of the prompt (aaaaaaaaaaaa, now bbbbbbbbbbbb)"
    model = "another model (qwen2.5-7b-instruct, now llama-3)"
    other = {"spec_hash": "c" * 64, "spec": {"labels": {"shipping": "delivery", "returns": "sent back"}}}
    labels = "other labels (billing gone; returns new)"

    for changed, said in (
        ({"spec_hash": "b" * 64}, hashes),
        ({"model": "llama-3"}, model),
        (other, labels),
        ({"model": "llama-3", **other}, f"{model} and {labels}"),
    ):
        with pytest.raises(UserError) as refused:
            submit(store, 1, **changed)
        assert str(refused.value) == (
            f"batch {batch} of this source and date was submitted with {said}: add --new to make a second batch; "
            f"{batch} goes on beside it, unless tickets-batch cancel {batch} ends it first"
        )


def test_of_a_batch_that_has_ended_there_is_nothing_to_end(store: Database) -> None:
    batch = submit(store, 1).batch_id
    succeed(store, claim(store, batch))

    with pytest.raises(UserError, match=r"another model .*: add --new to make a second batch$"):
        submit(store, 1, model="llama-3")


def test_whether_a_batch_would_be_made_topped_up_or_refused_is_known_before(store: Database) -> None:
    assert submissions.target(store, request()) is None
    batch = submit(store, 1).batch_id

    assert submissions.target(store, request()) == batch
    assert submissions.target(store, request(model="llama-3", new=True)) is None
    with pytest.raises(UserError, match="another model"):
        submissions.target(store, request(model="llama-3"))


def test_those_beside_a_batch_are_the_ones_that_have_not_ended(store: Database) -> None:
    ended = submit(store, 1).batch_id
    succeed(store, claim(store, ended))
    going_on = submit(store, 2, new=True).batch_id
    submit(store, 1, date=date(2026, 12, 1))
    newest = submit(store, 2, new=True).batch_id

    assert submissions.open_beside(store, request(), newest) == [going_on]


def test_how_each_ticket_stands_to_a_batch(store: Database) -> None:
    batch = submit(store, 2).batch_id
    asked = request()

    standing = Standings.of(store, batch, asked.spec_hash, asked.model)
    assert standing(ticket(0)) is Standing.ALREADY
    assert standing(ticket(1, "It came.")) is Standing.CHANGED
    assert standing(ticket(2)) is Standing.NEW
    assert Standings.of(store, None, asked.spec_hash, asked.model)(ticket(0)) is Standing.NEW
