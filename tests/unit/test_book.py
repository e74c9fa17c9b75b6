"""The rules of admission as plain arithmetic: one pool of 20 slots and 60,000 tokens, chat owns 8, batch owns 2."""

import pytest

from scheduler.book import FLOOR_HOLD_MS, RECENT, Book
from scheduler.capacity import Amount, PoolCapacity
from scheduler.permit import Ask, Kind, Outlook, Permit, PublishedLimit, Reason, Refusal, Standing
from scheduler.pull_back import DRAINER_MS, SOON_MS, SPARE_MS

POOL = PoolCapacity(Amount(20, 60_000), Amount(8, 24_000), Amount(2, 6_000))
LEASE_MS = 5_000
SMALL = Ask(prompt_tokens=500, output_tokens=100)


def book(limit: Amount | None = POOL.most_batch, prefill_tokens: int = 60_000) -> Book:
    made = Book(POOL, LEASE_MS)
    if limit is not None:
        made.publish(PublishedLimit(limit, prefill_tokens), ttl_ms=500_000, leader_epoch=1, now_ms=0)
    return made


def take(ledger: Book, kind: Kind, count: int, ask: Ask = SMALL, now_ms: int = 0) -> list[str]:
    """Acquire `count` permits that must be admitted; their tokens in order."""
    taken = []
    for _ in range(count):
        token = f"{kind}-{len(ledger.entries)}-{now_ms}"
        assert ledger.acquire(token, kind, ask, now_ms)[0] is None
        taken.append(token)
    return taken


def begun(ledger: Book, tokens: list[str], now_ms: int = 0) -> None:
    """The engine has begun to answer them."""
    for token in tokens:
        ledger.first_token(token, now_ms)


def refusal(ledger: Book, kind: Kind, ask: Ask = SMALL, now_ms: int = 0) -> Reason | None:
    refused, _ = ledger.acquire("asker", kind, ask, now_ms)
    return refused.reason if refused else None


def test_batch_alone_takes_everything_but_what_interactive_owns() -> None:
    ledger = book()
    take(ledger, Kind.BATCH, 12)
    assert refusal(ledger, Kind.BATCH) is Reason.PROTECTED
    assert ledger.held(Kind.BATCH) == Amount(12, 7_200)


def test_batch_stops_at_the_limit() -> None:
    ledger = book(limit=Amount(5, 40_000))
    take(ledger, Kind.BATCH, 5)
    assert refusal(ledger, Kind.BATCH) is Reason.LIMIT


def test_the_token_axis_limits_as_the_slots_do() -> None:
    ledger = book(limit=Amount(12, 10_000))
    take(ledger, Kind.BATCH, 3, Ask(3_000, 100))
    assert refusal(ledger, Kind.BATCH, Ask(3_000, 100)) is Reason.LIMIT
    assert refusal(ledger, Kind.BATCH, Ask(600, 100)) is None


def test_without_a_published_limit_batch_has_its_floor() -> None:
    ledger = book(limit=None)
    take(ledger, Kind.BATCH, 2)
    assert refusal(ledger, Kind.BATCH) is Reason.LIMIT


def test_a_stale_limit_is_the_floor() -> None:
    ledger = book(limit=None)
    ledger.publish(PublishedLimit(POOL.most_batch, 60_000), ttl_ms=1_000, leader_epoch=1, now_ms=0)
    take(ledger, Kind.BATCH, 3, now_ms=999)
    assert refusal(ledger, Kind.BATCH, now_ms=1_000) is Reason.LIMIT


def test_a_limit_below_the_floor_is_the_floor_and_one_above_the_pool_is_the_pool() -> None:
    assert book(limit=Amount(0, 0)).limit(0).limit == POOL.floor
    assert book(limit=Amount(99, 999_999)).limit(0).limit == POOL.most_batch


def test_a_limit_from_an_older_leader_is_refused() -> None:
    ledger = book(limit=None)
    limit = PublishedLimit(POOL.most_batch, 60_000)
    assert ledger.publish(limit, 1_000, leader_epoch=2, now_ms=0)
    assert not ledger.publish(limit, 1_000, leader_epoch=1, now_ms=0)
    assert ledger.publish(limit, 1_000, leader_epoch=2, now_ms=0)


def test_a_new_ledger_keeps_batch_at_the_floor_until_it_has_settled() -> None:
    ledger = book()
    ledger.settled_at_ms = LEASE_MS
    take(ledger, Kind.BATCH, 2)
    assert refusal(ledger, Kind.BATCH) is Reason.LIMIT
    assert refusal(ledger, Kind.BATCH, now_ms=LEASE_MS) is None


def test_interactive_is_refused_only_for_its_own_use() -> None:
    ledger = book()
    take(ledger, Kind.BATCH, 12)
    take(ledger, Kind.INTERACTIVE, 18)
    assert refusal(ledger, Kind.INTERACTIVE) is Reason.CAPACITY


def test_interactive_asks_back_just_what_stands_in_its_way() -> None:
    ledger = book()
    take(ledger, Kind.BATCH, 12)
    take(ledger, Kind.INTERACTIVE, 8)
    assert ledger.reclaiming() == Amount()
    take(ledger, Kind.INTERACTIVE, 1)
    assert ledger.reclaiming() == Amount(1, 600)
    assert ledger.held(Kind.INTERACTIVE) + ledger.held(Kind.BATCH) == Amount(20, 12_000)


def test_the_youngest_without_a_first_token_goes_first() -> None:
    ledger = book()
    tokens = take(ledger, Kind.BATCH, 4)
    ledger.first_token(tokens[1], 0)
    ledger.first_token(tokens[3], 0)
    assert ledger.revoke(Amount(3, 60_000), 0) == [tokens[2]]
    assert ledger.revoke(Amount(2, 60_000), 0) == [tokens[0]]


def test_nothing_is_asked_back_under_the_floor() -> None:
    ledger = book()
    tokens = take(ledger, Kind.BATCH, 6)
    assert ledger.revoke(Amount(0, 0), 0) == tokens[:1:-1]
    assert ledger.held(Kind.BATCH) == POOL.floor.at_most(Amount(2, 1_200))


def test_what_is_being_reclaimed_still_counts_against_new_batch_work() -> None:
    ledger = book()
    take(ledger, Kind.BATCH, 12)
    ledger.revoke(Amount(2, 60_000), 0)
    assert refusal(ledger, Kind.BATCH) is Reason.PROTECTED


def test_prefill_under_way_is_bounded_but_one_ticket_may_always_start() -> None:
    ledger = book(prefill_tokens=1_000)
    first = take(ledger, Kind.BATCH, 1, Ask(3_000, 40))[0]
    assert refusal(ledger, Kind.BATCH) is Reason.PREFILL
    ledger.first_token(first, 0)
    take(ledger, Kind.BATCH, 2)
    assert refusal(ledger, Kind.BATCH) is Reason.PREFILL


def test_a_ticket_larger_than_the_limit_runs_alone_and_blocks_no_smaller_one() -> None:
    large = Ask(9_000, 1_000)
    ledger = book(limit=POOL.floor)
    held = take(ledger, Kind.BATCH, 1)[0]
    assert refusal(ledger, Kind.BATCH, large) is Reason.LIMIT
    assert refusal(ledger, Kind.BATCH, SMALL) is None
    ledger.release(held, 0)
    ledger.release("asker", 0)
    assert refusal(ledger, Kind.BATCH, large) is None
    assert ledger.held(Kind.BATCH) == Amount(1, 10_000)


def test_the_large_ticket_must_fit_beside_interactive() -> None:
    ledger = book(limit=POOL.floor)
    take(ledger, Kind.INTERACTIVE, 5, Ask(10_000, 500))
    assert refusal(ledger, Kind.BATCH, Ask(9_000, 1_000)) is Reason.PROTECTED


def test_what_could_never_fit_is_said_to_be_too_large() -> None:
    assert refusal(book(), Kind.BATCH, Ask(36_001, 0)) is Reason.TOO_LARGE
    assert refusal(book(), Kind.BATCH, Ask(36_000, 0)) is None
    assert refusal(book(), Kind.INTERACTIVE, Ask(54_001, 0)) is Reason.TOO_LARGE


def test_observed_load_counts_where_it_is_larger_than_our_own_count() -> None:
    ledger = book()
    begun(ledger, take(ledger, Kind.INTERACTIVE, 2))
    ledger.observe(Amount(15, 15_000), ttl_ms=1_000, now_ms=0)
    take(ledger, Kind.BATCH, 5)
    assert refusal(ledger, Kind.BATCH) is Reason.PROTECTED
    assert refusal(ledger, Kind.BATCH, now_ms=1_000) is None


def test_what_a_scrape_still_shows_of_the_chat_does_not_refuse_it() -> None:
    """It is some seconds old: of eighteen requests that keep coming, those that ended would keep the next ones out."""
    ledger = book()
    ledger.observe(Amount(18, 54_000), ttl_ms=1_000, now_ms=0)
    take(ledger, Kind.INTERACTIVE, 18, Ask(1_000, 500))
    assert refusal(ledger, Kind.INTERACTIVE, Ask(1_000, 500)) is Reason.CAPACITY


def test_a_pause_refuses_batch_and_says_for_how_long() -> None:
    ledger = book()
    ledger.pause(2_000, now_ms=0)
    ledger.pause(500, now_ms=0)
    assert ledger.acquire("t", Kind.BATCH, SMALL, 500)[0] == Refusal(Reason.PAUSED, 1.5)
    assert refusal(ledger, Kind.INTERACTIVE, now_ms=500) is None
    assert refusal(ledger, Kind.BATCH, now_ms=2_000) is None


def test_a_holder_that_dies_frees_everything_within_one_lease() -> None:
    ledger = book()
    take(ledger, Kind.BATCH, 12)
    take(ledger, Kind.INTERACTIVE, 8)
    assert ledger.renew([], LEASE_MS) == {}
    assert ledger.entries == {}


def test_renewing_does_not_bring_back_what_was_given_away() -> None:
    ledger = book(limit=POOL.floor)
    late = take(ledger, Kind.BATCH, 2)
    take(ledger, Kind.BATCH, 2, now_ms=LEASE_MS)
    assert set(ledger.renew(late, LEASE_MS).values()) == {Standing.GONE}
    assert ledger.held(Kind.BATCH).slots == 2


def test_a_renewal_tells_the_holder_that_it_was_asked_back() -> None:
    ledger = book()
    token = take(ledger, Kind.BATCH, 3)[-1]
    ledger.revoke(POOL.floor, 0)
    assert ledger.renew([token], 100) == {token: Standing.REVOKED}


def test_a_late_release_does_not_free_the_slot_of_another() -> None:
    ledger = book()
    late = take(ledger, Kind.BATCH, 1)[0]
    take(ledger, Kind.BATCH, 1, now_ms=LEASE_MS)
    ledger.release(late, LEASE_MS)
    assert ledger.held(Kind.BATCH).slots == 1


def test_a_draining_permit_counts_until_its_time_is_up() -> None:
    ledger = book()
    tokens = take(ledger, Kind.BATCH, 12)
    ledger.drain(tokens[0], drain_ms=8_000, now_ms=0)
    ledger.renew(tokens[1:], 4_000)
    assert ledger.reclaiming() == Amount(1, 600)
    assert refusal(ledger, Kind.BATCH, now_ms=7_999) is Reason.PROTECTED
    assert refusal(ledger, Kind.BATCH, now_ms=8_000) is None
    assert ledger.reclaiming() == Amount()


def test_settling_books_the_truth() -> None:
    ledger = book()
    token = take(ledger, Kind.BATCH, 1)[0]
    ledger.settle(token, 590, 0)
    assert ledger.held(Kind.BATCH) == Amount(1, 590)


def test_the_same_ask_again_is_admitted_once() -> None:
    ledger = book()
    assert ledger.acquire("t", Kind.BATCH, SMALL, 0) == (None, [])
    assert ledger.acquire("t", Kind.BATCH, SMALL, 0) == (None, [])
    assert ledger.held(Kind.BATCH) == Amount(1, 600)


def test_a_live_holder_registers_again_with_a_ledger_that_lost_its_memory() -> None:
    ledger = book()
    ledger.settled_at_ms = LEASE_MS
    for number in range(6):
        assert ledger.register(Permit(f"b{number}", Kind.BATCH, SMALL), now_ms=100) is Standing.HELD
    assert ledger.held(Kind.BATCH).slots == 6
    assert refusal(ledger, Kind.BATCH, now_ms=200) is Reason.LIMIT


def test_a_zombie_does_not_register_again_once_the_ledger_has_settled() -> None:
    ledger = book()
    ledger.settled_at_ms = LEASE_MS
    assert ledger.register(Permit("late", Kind.BATCH, SMALL), LEASE_MS) is Standing.GONE
    assert ledger.register(Permit("chat", Kind.INTERACTIVE, SMALL), LEASE_MS) is Standing.HELD


class TestFirstTokenGate:
    def test_nothing_over_the_floor_while_a_chat_request_waits(self) -> None:
        ledger = book()
        take(ledger, Kind.BATCH, 2)
        chat = take(ledger, Kind.INTERACTIVE, 2)
        begun(ledger, chat[:1])
        assert refusal(ledger, Kind.BATCH, now_ms=FLOOR_HOLD_MS) is Reason.FIRST_TOKEN
        begun(ledger, chat[1:])
        assert refusal(ledger, Kind.BATCH, now_ms=FLOOR_HOLD_MS) is None

    def test_the_floor_is_held_back_for_a_moment_only_however_many_come_after_the_first(self) -> None:
        ledger = book()
        first = take(ledger, Kind.INTERACTIVE, 1)
        take(ledger, Kind.INTERACTIVE, 1, now_ms=FLOOR_HOLD_MS - 1)
        begun(ledger, first, FLOOR_HOLD_MS - 1)
        assert refusal(ledger, Kind.BATCH, now_ms=FLOOR_HOLD_MS - 1) is Reason.FIRST_TOKEN
        assert refusal(ledger, Kind.BATCH, now_ms=FLOOR_HOLD_MS) is None

    def test_prompts_that_take_next_to_no_time_may_come_beside_it(self) -> None:
        ledger = book()
        outlook = Outlook(prefill_beside_tokens=1_100)
        ledger.publish(PublishedLimit(ledger.capacity.most_batch, 9_000, outlook), 60_000, 1, 0)
        take(ledger, Kind.INTERACTIVE, 1)
        tickets = take(ledger, Kind.BATCH, 2)
        assert refusal(ledger, Kind.BATCH) is Reason.FIRST_TOKEN
        begun(ledger, tickets[:1])
        assert refusal(ledger, Kind.BATCH, Ask(601, 100)) is Reason.FIRST_TOKEN
        assert refusal(ledger, Kind.BATCH, Ask(600, 100)) is None

    def test_one_too_long_may_not_come_beside_it_though_nothing_else_is_on_its_way(self) -> None:
        ledger = book()
        outlook = Outlook(prefill_beside_tokens=1_100)
        ledger.publish(PublishedLimit(ledger.capacity.most_batch, 9_000, outlook), 60_000, 1, 0)
        take(ledger, Kind.INTERACTIVE, 1)
        assert refusal(ledger, Kind.BATCH, Ask(1_101, 100)) is Reason.FIRST_TOKEN

    def test_a_chat_request_that_will_show_no_first_token_holds_nothing_back(self) -> None:
        ledger = book()
        take(ledger, Kind.INTERACTIVE, 1, Ask(500, 100, streamed=False))
        take(ledger, Kind.BATCH, 3)

    def test_one_whose_holder_died_holds_nothing_back_after_its_lease(self) -> None:
        ledger = book()
        take(ledger, Kind.INTERACTIVE, 1)
        take(ledger, Kind.BATCH, 3, now_ms=LEASE_MS)


class TestPrefill:
    def test_it_keeps_the_floor_back_for_a_moment_only(self) -> None:
        ledger = book(prefill_tokens=1_000)
        take(ledger, Kind.BATCH, 1, Ask(3_000, 40))
        assert refusal(ledger, Kind.BATCH, now_ms=FLOOR_HOLD_MS - 1) is Reason.PREFILL
        assert refusal(ledger, Kind.BATCH, now_ms=FLOOR_HOLD_MS) is None
        assert refusal(ledger, Kind.BATCH, now_ms=2 * FLOOR_HOLD_MS) is None  # the same asker
        assert ledger.acquire("another", Kind.BATCH, SMALL, 2 * FLOOR_HOLD_MS)[0] == Refusal(Reason.PREFILL)

    def test_what_is_withdrawn_is_still_in_front(self) -> None:
        ledger = book(prefill_tokens=1_000)
        token = take(ledger, Kind.BATCH, 1, Ask(3_000, 40))[0]
        ledger.drain(token, 300, 0)
        assert refusal(ledger, Kind.BATCH, now_ms=299) is Reason.PREFILL
        assert refusal(ledger, Kind.BATCH, now_ms=300) is None


class TestOutlook:
    BUSY = Outlook(high=Amount(16, 40_000), reserve=2, request_tokens=1_000)

    def test_the_reserve_is_kept_free_for_the_chat_and_not_at_the_floors_cost(self) -> None:
        ledger = book(limit=None)
        ledger.publish(PublishedLimit(POOL.most_batch, 60_000, self.BUSY), 60_000, leader_epoch=1, now_ms=0)
        begun(ledger, take(ledger, Kind.INTERACTIVE, 13))
        take(ledger, Kind.BATCH, 5)
        assert refusal(ledger, Kind.BATCH) is Reason.LIMIT

    def test_it_ends_with_the_limit_that_it_came_with(self) -> None:
        ledger = book(limit=None)
        ledger.publish(PublishedLimit(POOL.most_batch, 60_000, self.BUSY), 1_000, leader_epoch=1, now_ms=0)
        assert ledger.limit(999).outlook == self.BUSY
        assert ledger.limit(1_000) == PublishedLimit(POOL.floor, POOL.floor.tokens)


class TestAskingBack:
    def long(self, ledger: Book, count: int, expected_ms: int, now_ms: int = 0) -> list[str]:
        tokens = take(ledger, Kind.BATCH, count, Ask(500, 100, expected_ms), now_ms)
        begun(ledger, tokens, now_ms)
        return tokens

    @pytest.mark.parametrize(
        ("left_ms", "asked_back"), [(SPARE_MS, 0), (SPARE_MS + 1, 1), (-SPARE_MS, 0), (-SPARE_MS - 1, 1)]
    )
    def test_for_a_chat_request_who_ends_soon_or_is_a_little_late_is_spared(
        self, left_ms: int, asked_back: int
    ) -> None:
        ledger = book()
        self.long(ledger, 12, expected_ms=1_000)
        take(ledger, Kind.INTERACTIVE, 9, now_ms=1_000 - left_ms)
        assert ledger.reclaiming().slots == asked_back

    @pytest.mark.parametrize(("left_ms", "asked_back"), [(DRAINER_MS, 0), (DRAINER_MS + 1, 10)])
    def test_going_back_to_the_floor_drainers_may_end(self, left_ms: int, asked_back: int) -> None:
        ledger = book()
        self.long(ledger, 12, expected_ms=left_ms)
        assert len(ledger.revoke(POOL.floor, 0)) == asked_back

    def test_a_chat_request_without_room_sends_all_but_the_floor_away_drainers_too(self) -> None:
        ledger = book()
        own = self.long(ledger, 12, expected_ms=SOON_MS + 1)
        begun(ledger, take(ledger, Kind.INTERACTIVE, 18))
        assert ledger.acquire("chat", Kind.INTERACTIVE, SMALL, 0) == (Refusal(Reason.CAPACITY), own[:1:-1])

    @pytest.mark.parametrize("late_ms", [-1, 1, SOON_MS])
    def test_nor_is_anyone_s_end_counted_on_then(self, late_ms: int) -> None:
        """What is late may be late for long: a whole wait at the door once passed with somebody always about to end."""
        ledger = book()
        own = self.long(ledger, 8, expected_ms=1_000)
        begun(ledger, take(ledger, Kind.INTERACTIVE, 12))
        too_much = Ask(POOL.most_interactive.tokens, 0)
        refusal, victims = ledger.acquire("chat", Kind.INTERACTIVE, too_much, 1_000 + late_ms)
        assert refusal == Refusal(Reason.CAPACITY)
        assert len(victims) == len(own) - POOL.floor.slots

    def test_prompts_in_front_of_a_chat_request_are_asked_back_but_for_a_few_tokens(self) -> None:
        outlook = Outlook(prefill_rate=10_000, prefill_ahead_tokens=1_500)
        ledger = book(limit=None)
        ledger.publish(PublishedLimit(POOL.most_batch, 60_000, outlook), 60_000, leader_epoch=1, now_ms=0)
        own = take(ledger, Kind.BATCH, 6, Ask(500, 1_500))
        assert ledger.acquire("chat", Kind.INTERACTIVE, SMALL, 0)[1] == own[:2:-1]
        assert ledger.acquire("another", Kind.INTERACTIVE, SMALL, 0)[1] == []

    def test_of_an_engine_whose_rate_is_unknown_none_are(self) -> None:
        ledger = book()
        take(ledger, Kind.BATCH, 6)
        assert ledger.acquire("chat", Kind.INTERACTIVE, SMALL, 0)[1] == []


class TestWhatIsTold:
    def test_counters_and_first_tokens(self) -> None:
        ledger = book()
        own = take(ledger, Kind.BATCH, 3)
        chat = take(ledger, Kind.INTERACTIVE, 2)
        begun(ledger, [own[0]], 400)
        begun(ledger, [chat[0]], 700)
        begun(ledger, [chat[0], "unknown"], 900)
        ledger.revoke(POOL.floor, 900)
        ledger.refuse()
        seen = ledger.snapshot(1_000)
        assert (seen.arrivals, seen.first_tokens, seen.revoked, seen.refused) == (2, 2, 1, 1)
        assert [(first.kind, first.seconds) for first in seen.recent] == [(Kind.INTERACTIVE, 0.7), (Kind.BATCH, 0.4)]
        assert (seen.interactive_waiting, seen.oldest_waiting_seconds) == (1, 1.0)

    def test_only_the_last_first_tokens_are_remembered(self) -> None:
        ledger = book()
        for n in range(RECENT + 5):
            begun(ledger, take(ledger, Kind.INTERACTIVE, 1, now_ms=n), n + 1)
            ledger.release(f"{Kind.INTERACTIVE}-0-{n}", n + 1)
        seen = ledger.snapshot(RECENT + 5)
        assert (seen.first_tokens, len(seen.recent)) == (RECENT + 5, RECENT)

    def test_the_age_of_the_last_beat(self) -> None:
        ledger = book()
        assert ledger.snapshot(0).beat_age_seconds is None
        ledger.beat(100)
        assert ledger.snapshot(1_350).beat_age_seconds == 1.25

    def test_a_registered_request_is_no_arrival_and_waits_for_nothing(self) -> None:
        ledger = book()
        ledger.register(Permit("chat", Kind.INTERACTIVE, SMALL), 0)
        seen = ledger.snapshot(0)
        assert (seen.arrivals, seen.interactive_waiting, seen.interactive.slots) == (0, 0, 1)


class TestVersion:
    """It is another one after anything by which batch may find room, and only then."""

    def test_asking_in_vain_and_waiting_change_nothing(self) -> None:
        ledger = book(limit=Amount(2, 6_000))
        take(ledger, Kind.BATCH, 2)
        before = ledger.version(0)
        assert refusal(ledger, Kind.BATCH, now_ms=10) is Reason.LIMIT
        assert ledger.version(20) == before

    @pytest.mark.parametrize("verb", ["release", "drain", "settle", "first_token", "publish", "observe", "chat"])
    def test_each_verb_that_may_give_room_changes_it(self, verb: str) -> None:
        ledger = book()
        token = take(ledger, Kind.BATCH, 1)[0]
        before = ledger.version(0)
        match verb:
            case "release":
                ledger.release(token, 0)
            case "drain":
                ledger.drain(token, 300, 0)
            case "settle":
                ledger.settle(token, 10, 0)
            case "first_token":
                ledger.first_token(token, 0)
            case "publish":
                ledger.publish(PublishedLimit(POOL.floor, 1), 1_000, 1, 0)
            case "observe":
                ledger.observe(Amount(1, 100), 1_000, 0)
            case "chat":
                take(ledger, Kind.INTERACTIVE, 1)
        assert ledger.version(0) != before

    def test_so_does_the_end_of_a_lease_of_a_limit_of_a_reading_and_of_a_pause(self) -> None:
        ledger = Book(POOL, LEASE_MS, settled_at_ms=100)
        ledger.pause(200, 0)
        ledger.observe(Amount(1, 100), 300, 0)
        ledger.publish(PublishedLimit(POOL.most_batch, 60_000), 400, 1, 0)
        take(ledger, Kind.INTERACTIVE, 1)
        versions = [ledger.version(now_ms) for now_ms in (0, 99, 100, 200, 300, 400, LEASE_MS)]
        assert versions[0] == versions[1]
        assert len(set(versions)) == 6
