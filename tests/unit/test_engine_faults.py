"""Which request meets which scripted fault."""

import pytest

from tests.engine.faults import Fault, FaultPlan, Rule


def drawn(plan: FaultPlan, ticket: str, tries: int = 1, *, number: int = 1, klass: str = "batch") -> list[str | None]:
    faults = [plan.draw(number, ticket, klass) for _ in range(tries)]
    return [fault.kind if fault is not None else None for fault in faults]


def test_without_rules_nothing_goes_wrong() -> None:
    assert drawn(FaultPlan(), "Hello") == [None]


def test_a_fault_can_be_tied_to_request_numbers() -> None:
    plan = FaultPlan([Rule(Fault("500"), numbers=(2, 3))])
    assert [drawn(plan, "Hello", number=number)[0] for number in (1, 2, 3, 4)] == [None, "500", "500", None]


def test_a_fault_can_be_tied_to_text_and_to_a_class() -> None:
    plan = FaultPlan([Rule(Fault("500"), text="fire", klass="batch")])
    assert drawn(plan, "The printer is on fire.") == ["500"]
    assert drawn(plan, "The printer is on fire.", klass="interactive") == [None]
    assert drawn(plan, "The printer is out of paper.") == [None]


def test_times_counts_for_each_ticket_by_itself() -> None:
    plan = FaultPlan([Rule(Fault("429"), times=2)])
    assert drawn(plan, "One", tries=3) == ["429", "429", None]
    assert drawn(plan, "Two", tries=3) == ["429", "429", None]


def test_the_first_rule_that_still_applies_wins() -> None:
    plan = FaultPlan([Rule(Fault("429"), times=1), Rule(Fault("500"), times=1)])
    assert drawn(plan, "Hello", tries=3) == ["429", "500", None]


def test_a_rate_befalls_its_share_of_the_tickets_in_whatever_order_they_come() -> None:
    tickets = [f"Ticket {number}" for number in range(1000)]
    forward, backward, other = (FaultPlan([Rule(Fault("500"), rate=0.2)], seed=seed) for seed in (1, 1, 2))
    first = {ticket: drawn(forward, ticket, tries=2) for ticket in tickets}
    again = {ticket: drawn(backward, ticket, tries=2) for ticket in reversed(tickets)}
    assert first == again
    assert first != {ticket: drawn(other, ticket, tries=2) for ticket in tickets}
    hits = sum(kinds.count("500") for kinds in first.values())
    assert 320 < hits < 480
    assert ["500", None] in first.values()


def test_a_ticket_can_carry_its_faults() -> None:
    plan = FaultPlan()
    ticket = "Help! [[fault:429 retry_after=1.5 form=date times=1]] [[fault:stall after=3 seconds=2 times=1]]"
    assert plan.draw(1, ticket, "batch") == Fault("429", retry_after_seconds=1.5, retry_after_form="date")
    assert plan.draw(2, ticket, "batch") == Fault("stall", after_tokens=3, seconds=2.0)
    assert plan.draw(3, ticket, "batch") is None


def test_a_rule_survives_the_way_through_json() -> None:
    rule = Rule(Fault("429", retry_after_seconds=1.5), times=2, numbers=(1, 2), text="x", rate=0.5, klass="batch")
    assert Rule.from_json(rule.as_json()) == rule


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ({"fault": {"kind": "earthquake"}}, "unknown fault 'earthquake'"),
        ({"fault": {"kind": "500", "speed": 1}}, "unknown field 'speed' in a fault"),
        ({"fault": {"kind": "500"}, "often": True}, "unknown field 'often' in a rule"),
        ({"fault": {"kind": "429", "retry_after_form": "runes"}}, "retry_after_form is seconds or date"),
        ({}, "a rule needs a fault"),
    ],
)
def test_a_rule_that_cannot_be_read_says_why(value: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Rule.from_json(value)
