"""The simulated night: what must hold of any, and what each policy is."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from scheduler.capacity import Amount, PoolCapacity
from scheduler.permit import Ask, Kind, Reason
from scheduler.simulation.admission import Admission
from scheduler.simulation.shapes import Arrival, alternating, burst, overload
from scheduler.simulation.site import Site
from scheduler.simulation.tickets import Ticket, TicketQueue, endless
from scheduler.simulation.world import Chat, Flight, Policy, Tally, World
from tests.simulation.clairvoyant import Clairvoyant
from tests.simulation.peers import FixedCap
from tests.simulation.rows import ALONE, ENGINE_PRIORITY, NO_GATE, OURS, OURS_PRIORITY, Night, Result, play
from tests.simulation.sites import LARGE, MIDDLE, REPLICAS, SITES, SMALL

SECONDS = 120.0


def night(
    policy: Policy, chat: list[Arrival], site: Site = MIDDLE, kind: str = "short", seconds: float = SECONDS
) -> Tally:
    return World(site, chat, TicketQueue(endless(kind, 1)), policy, seconds).run()


def result(row: str, site: Site = MIDDLE, seconds: float = SECONDS) -> Result:
    return play(Night(site, "burst", "short", 1, seconds, row))


@pytest.mark.parametrize("site", SITES.values(), ids=SITES.keys())
@pytest.mark.parametrize("kind", ["short", "mix"])
def test_every_chat_request_is_answered_or_refused(site: Site, kind: str) -> None:
    chat = burst(site, 1, 30.0)
    for policy in (FixedCap(8), Admission(), Clairvoyant(chat, 1)):
        tally = night(policy, chat, site, kind, 30.0)
        assert len(tally.ttfts_seconds) + tally.refused == len(chat)
        assert tally.tickets > 0


def test_the_same_night_comes_out_the_same() -> None:
    assert result(OURS) == result(OURS)
    assert result("cap 8") == result("cap 8")


def test_chat_alone_on_an_idle_engine_waits_for_its_own_prompt() -> None:
    # One request at a time: 20 ms and 512 prompt tokens at 0.06 ms.
    tally = night(FixedCap(0), [Arrival(10.0 * number, 512, 100) for number in range(1, 10)])
    assert tally.ttfts_seconds == pytest.approx([0.020 + 512 * 0.000_06] * 9)
    assert tally.tickets == 0


def test_one_ticket_at_a_time_gets_done_at_the_speed_of_the_engine() -> None:
    # 20 ms + 30 ms of prompt, then 39 steps of 20.15 ms: 0.836 s a ticket.
    assert night(FixedCap(1), []).tickets == int(SECONDS / 0.83585)


class Watched(FixedCap):
    """A cap that notes the most it ever held."""

    most = 0

    def pump(self) -> None:
        super().pump()
        self.most = max(self.most, len(self.world.flights))


def test_a_cap_is_always_full_and_never_more() -> None:
    policy = Watched(7)
    night(policy, alternating(MIDDLE, 1, SECONDS))
    assert policy.most == 7


class Checked(Admission):
    """Admission, with the ledger held against the engines after every event."""

    most_over = 0

    def pump(self) -> None:
        super().pump()
        at_engines = {*self.world.chat, *self.world.flights}
        counted = {token: entry.is_reclaiming for token, entry in self.book.entries.items()}
        assert counted.keys() >= at_engines
        assert all(counted[token] for token in counted.keys() - at_engines)  # withdrawn, and the engine was faster
        within = self.world.site.capacity.total
        not_reclaiming = self.book.held(Kind.INTERACTIVE) + self.book.held(Kind.BATCH)
        self.most_over = max(self.most_over, not_reclaiming.slots - within.slots)
        assert self.world.own <= self.world.site.capacity.most_batch.slots


@pytest.mark.parametrize("kind", ["short", "long", "mix"])
@pytest.mark.parametrize("shape", [alternating, burst, overload])
def test_the_ledger_counts_what_is_at_the_engines(shape: object, kind: str) -> None:
    assert callable(shape)
    policy = Checked()
    night(policy, shape(MIDDLE, 1, SECONDS), kind=kind)
    assert policy.most_over <= MIDDLE.capacity.floor.slots + 8  # drainers stand over it for a moment


class Doubting(Admission):
    """Asks again although nothing has changed since it was refused for want of room."""

    asked = 0

    def pump(self) -> None:
        if self.book.version(self._now_ms()) == self._refused_in:
            for ticket in self.world.tickets.candidates():
                seconds = self._durations.predict(ticket.prompt_tokens, ticket.longest_output)
                ask = Ask(ticket.prompt_tokens, ticket.longest_output, round(seconds * 1000))
                refusal, _ = self.book.acquire("doubt", Kind.BATCH, ask, self._now_ms())
                assert refusal is not None
                assert refusal.reason in (Reason.LIMIT, Reason.PROTECTED)
                self.asked += 1
        super().pump()


@pytest.mark.parametrize("shape", [alternating, burst, overload])
def test_a_refusal_for_want_of_room_stands_until_the_ledger_changes(shape: object) -> None:
    assert callable(shape)
    doubting = Doubting()
    tally = night(doubting, shape(MIDDLE, 1, SECONDS), kind="mix")
    assert doubting.asked > 100
    assert tally == night(Admission(), shape(MIDDLE, 1, SECONDS), kind="mix")


class Withdrawing(FixedCap):
    """Starts one odd ticket, and closes it half a second later."""

    odd = Ticket(100, 100)

    def begin(self, world: World) -> None:
        super().begin(world)
        world.tickets.put_back(self.odd)
        flight = world.start(self.odd)
        world.call_at(0.5, lambda: world.withdraw(flight, asked_back_at=0.4))


def test_a_withdrawn_ticket_goes_back_to_the_queue_and_what_was_computed_is_wasted() -> None:
    queue = TicketQueue(endless("long", 1))
    tally = World(MIDDLE, [], queue, Withdrawing(0), SECONDS).run()
    # 26 ms to its first token, then one in 20.15 ms: at half a second the 25th is under way.
    assert (tally.withdrawn, tally.wasted_tokens, tally.tickets) == (1, 100 + 25, 0)
    assert tally.pull_backs == {0.4: pytest.approx(0.026 + 24 * 0.02015)}
    assert queue.candidates()[-1] == Withdrawing.odd


def test_for_a_burst_long_tickets_are_withdrawn_and_go_within_a_step() -> None:
    tally = night(Admission(), burst(MIDDLE, 1, SECONDS), kind="long")
    assert tally.withdrawn > 0
    assert tally.wasted_tokens > 0
    assert tally.pull_backs
    assert all(0.0049 < gone_at - asked_at < 0.5 for asked_at, gone_at in tally.pull_backs.items())


class Closed(FixedCap):
    """A door that lets nobody in and notes when each knocks."""

    def begin(self, world: World) -> None:
        super().begin(world)
        self.knocks: list[float] = []

    def admits_chat(self, chat: Chat) -> bool:
        self.knocks.append(self.world.now)
        return False


def test_a_refused_chat_request_knocks_for_a_moment_and_is_counted() -> None:
    policy = Closed(1)
    tally = night(policy, [Arrival(5.0, 512, 100)])
    assert tally.refused == 1
    assert policy.knocks[0] == 5.0
    assert 0.24 < policy.knocks[-1] - policy.knocks[0] <= 0.3
    assert all(later - sooner == pytest.approx(0.05) for sooner, later in pairwise(policy.knocks))


def test_at_a_door_that_never_gives_up_nobody_is_refused() -> None:
    chat = overload(MIDDLE, 1, 20.0)
    for policy in (FixedCap(8), Admission()):
        tally = night(policy, chat, replace(MIDDLE, door_seconds=math.inf), seconds=20.0)
        assert tally.refused == 0
        assert len(tally.ttfts_seconds) == len(chat)
        assert max(tally.ttfts_seconds) > 5


def test_every_row_has_the_same_door() -> None:
    # A chat request as large as all that chat may hold, twice at once: the second finds no room, whoever asks.
    capacity = PoolCapacity(Amount(20, 12_000), Amount(8, 5_000), Amount(2, 2_000))
    site = replace(MIDDLE, capacity=capacity)
    chat = [Arrival(1.0, 6000, 500), Arrival(1.1, 6000, 500)]
    for policy in (FixedCap(2), Admission(), Clairvoyant(chat, 1)):
        assert night(policy, chat, site).refused == 1


def test_the_clairvoyant_keeps_free_what_will_come() -> None:
    chat = [Arrival(60.0 + number * 1e-4, 512, 1000) for number in range(16)]

    class Noted(Clairvoyant):
        def begin(self, world: World) -> None:
            super().begin(world)
            self.at_burst = -1
            world.call_at(59.999, self._note)

        def _note(self) -> None:
            self.at_burst = len(self.world.flights)

    seeing, overdrawing = Noted(chat, 0), Noted(chat, -10)
    night(seeing, chat)
    night(overdrawing, chat)
    assert seeing.at_burst <= 6  # what is late included
    assert overdrawing.at_burst > 8


def test_engine_priority_serves_chat_first_and_no_gate_does_not() -> None:
    assert result(ENGINE_PRIORITY).ttft_p99 < 0.5 * result(NO_GATE).ttft_p99


def test_ours_with_engine_priority_asks_the_engine_for_it() -> None:
    priorities = set()

    class Noted(Admission):
        def ticket_first_token(self, flight: Flight) -> None:
            super().ticket_first_token(flight)
            priorities.add(flight.id)

    night(Noted(priority=1), [], MIDDLE.with_priority())
    assert priorities
    assert result(OURS_PRIORITY).tickets_per_second > 0


def test_two_replicas_share_the_load_in_turns() -> None:
    one, two = result("cap 8", site=MIDDLE), result("cap 16", site=REPLICAS)
    assert two.tickets_per_second == pytest.approx(2 * one.tickets_per_second, rel=0.2)


def test_the_small_and_the_large_site_run_ours() -> None:
    for site in (SMALL, LARGE):
        assert result(OURS, site, 20.0).tickets_per_second > result(ALONE, site, 20.0).tickets_per_second
