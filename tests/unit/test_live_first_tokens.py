"""What the chat feels of late, told from a ledger that remembers requests without their times."""

from scheduler.permit import Kind
from scheduler.snapshot import FirstToken, Snapshot
from tests.support.readings import snapshot, waited
from tickets_batch.cli.live.first_tokens import FirstTokens, Heard


def ledger(count: int, *newest: FirstToken) -> Snapshot:
    return snapshot(first_tokens=count, recent=newest)


def test_what_was_there_before_the_first_look_is_of_no_known_time() -> None:
    tokens = FirstTokens()
    tokens.add(100, ledger(2, *waited(0.3, 0.5)))
    assert tokens.heard(100) == Heard(2, 0.3, 0.5, is_of_late=False)
    assert tokens.heard(159).count == 2
    assert tokens.heard(160) == Heard(is_of_late=False, silent_seconds=60)


def test_what_is_new_is_of_now_and_only_the_chat_counts() -> None:
    tokens = FirstTokens()
    tokens.add(100, ledger(2, *waited(0.3, 0.5)))
    tokens.add(101, ledger(5, *waited(9.0, kind=Kind.BATCH), *waited(0.7, 0.6), *waited(0.3, 0.5)))
    assert tokens.heard(101) == Heard(2, 0.6, 0.7)


def test_after_a_minute_it_is_no_longer_of_now() -> None:
    tokens = FirstTokens()
    tokens.add(100, ledger(0))
    tokens.add(110, ledger(1, *waited(0.7)))
    assert tokens.heard(170).count == 1
    assert tokens.heard(171) == Heard(is_of_late=False, silent_seconds=61)


def test_a_ledger_that_began_anew_counts_from_zero() -> None:
    tokens = FirstTokens()
    tokens.add(100, ledger(900, *waited(0.3)))
    tokens.add(101, ledger(1, *waited(0.4)))
    assert tokens.heard(101) == Heard(1, 0.4, 0.4)


def test_nothing_was_ever_heard() -> None:
    tokens = FirstTokens()
    assert tokens.heard(5) == Heard(is_of_late=False)
    tokens.add(100, ledger(0))
    assert tokens.heard(130) == Heard(is_of_late=False, silent_seconds=30)
