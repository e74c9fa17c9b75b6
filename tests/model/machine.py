"""The rules of a random night: who may do what next."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from jobs.outcomes import Symptom
from jobs.store.blocking import FIRST_PROBE_SECONDS
from scheduler import service
from scheduler.capacity import Amount
from scheduler.control import LIMIT_SECONDS
from tests.model.house import LEASE_SECONDS, SCHEDULERS, WORKERS
from tests.model.night import Night
from tests.model.permits import CAPACITY
from tests.model.processes import Worker
from tests.support.valkey import ValkeyServer

STEP_SECONDS = 0.001  # no two steps at one instant

some = st.integers(0, 9)
worker = st.integers(0, WORKERS - 1)
scheduler = st.integers(0, SCHEDULERS - 1)
answer: st.SearchStrategy[Symptom | None] = st.sampled_from(
    [
        *[None] * 5,
        *[Symptom.INVALID_OUTPUT] * 2,
        Symptom.TIMED_OUT,
        Symptom.OVERLOADED,
        Symptom.TOO_LONG,
        Symptom.REFUSED,
        Symptom.BLOCKED,
    ]
)
limit = st.just(CAPACITY.most_batch) | st.builds(Amount, st.integers(0, 6), st.integers(0, 6_000))
few = st.integers(1, 4)
ttl = st.sampled_from([LIMIT_SECONDS, 60.0])
shift = st.integers(20, 300)  # seconds


# Each step with its weight and what is drawn for it.
STEPS: dict[str, tuple[int, tuple[st.SearchStrategy[Any], ...]]] = {
    "take_a_task": (3, (some, st.booleans(), few)),
    "claim": (4, (some, few)),
    "admit": (2, (some,)),
    "admit_all": (4, (some,)),
    "first_token": (2, (some, some)),
    "land": (3, (some, some, answer)),
    "land_and_write": (4, (some, some, answer)),
    "no_key": (1, (some, some, st.booleans())),
    "write": (3, (some, few, st.booleans())),
    "keep": (4, (some, st.sampled_from(["look", "renew_leases", "renew_permits"]))),
    "live_or_die": (2, (worker, st.sampled_from(["beat", "kill_worker", "kill_worker", "stop_worker"]))),
    "finish_late": (2, (some, answer)),
    "come_late": (2, (some, st.sampled_from(["lease", "release", "drain", "renew", "first token"]))),
    "lead_and_publish": (4, (scheduler, limit, ttl)),
    "publish": (1, (scheduler, limit, ttl)),
    "take_over": (1, (scheduler, limit)),
    "do": (3, (scheduler, st.sampled_from(["reap", "expire", "pull_back", "tell", "note", "dispatch"]))),
    "lapse": (2, (scheduler, st.sampled_from([4, 15, 16]))),
    "replace": (1, (scheduler, st.sampled_from(["resign", "kill_scheduler"]))),
    "chat_asks": (2, (st.integers(1, 2_500),)),
    "rush_hour": (2, (few,)),
    "chat": (1, (some, st.sampled_from(["hears", "ends", "ends", "renews", "dies"]))),
    "command": (1, (st.sampled_from(["resume", "pause", "cancel", "resume", "cancel and die"]), some)),
    "retry": (1, (some, shift)),
    "pass_seconds": (2, (st.sampled_from([0.3, 1, 2, 5, 15, 30]),)),
    "fault": (1, (st.sampled_from(["wipe", "forget scripts", "step back", "step forward"]), st.integers(2, 40))),
}
names = st.sampled_from([name for name, (weight, _) in STEPS.items() for _ in range(weight)])
steps = names.flatmap(lambda name: st.tuples(st.just(name), *STEPS[name][1]))


class RandomNight(RuleBasedStateMachine):
    """Each rule is one step of one process, or a few that often follow each other; who gets no step stands still."""

    def __init__(self, database_url: str, server: ValkeyServer, runner: asyncio.Runner) -> None:
        super().__init__()
        self.night = Night(database_url, server, runner)

    @initialize(
        sizes=st.lists(st.integers(4, 9), min_size=1, max_size=2),
        deadlines=st.lists(st.none() | shift, min_size=2, max_size=2),
    )
    def begin(self, sizes: list[int], deadlines: list[int | None]) -> None:
        self.night.submit(sizes, deadlines[: len(sizes)])
        for n in range(SCHEDULERS):
            self.night.lead(n)
            self.night.dispatch(n)
        self.night.pass_seconds(5.0)  # until then a new ledger gives batch its floor
        self.lead_and_publish(0, CAPACITY.most_batch, 60.0)
        self.night.take(0, again=True)
        self.night.take(1, again=False)

    @invariant()
    def is_as_the_model_says(self) -> None:
        self.night.check()
        self.night.pass_seconds(STEP_SECONDS)

    @rule(step=steps)
    def step(self, step: tuple[Any, ...]) -> None:
        name, *arguments = step
        getattr(self, name)(*arguments)

    def pick(self, which: int, can: Callable[[Worker], object]) -> int:
        """One of the workers that can, or any where none can."""
        able = [n for n in range(WORKERS) if can(self.night.workers[n])] or list(range(WORKERS))
        return able[which % len(able)]

    # --- workers at work

    def take_a_task(self, which: int, again: bool, limit: int) -> None:
        n = self.pick(which, lambda worker: not worker.held)
        self.night.take(n, again=again)
        self.night.claim(n, limit)

    def claim(self, which: int, limit: int) -> None:
        self.night.claim(self.pick(which, lambda worker: worker.batch), limit)

    def admit(self, which: int) -> None:
        self.night.admit(self.pick(which, lambda worker: worker.waiting))

    def admit_all(self, which: int) -> None:
        n = self.pick(which, lambda worker: worker.waiting)
        while self.night.admit(n):
            pass

    def first_token(self, which: int, flight: int) -> None:
        self.night.first_token(self.pick(which, lambda worker: worker.flights), flight)

    def land(self, which: int, flight: int, symptom: Symptom | None) -> None:
        self.night.land(self.pick(which, lambda worker: worker.flights), flight, symptom)

    def land_and_write(self, which: int, flight: int, symptom: Symptom | None) -> None:
        n = self.pick(which, lambda worker: worker.flights)
        self.night.land(n, flight, symptom)
        self.night.write(n, 32)

    def no_key(self, which: int, flight: int, is_lost: bool) -> None:
        """The endpoint refuses everyone; later one job is to find out whether it still does, or is lost over it."""
        n = self.pick(which, lambda worker: worker.flights)
        self.night.land(n, flight, Symptom.BLOCKED)
        self.night.write(n, 32)
        self.night.pass_seconds(FIRST_PROBE_SECONDS)
        self.night.claim(n, 4)
        if is_lost:
            self.night.kill_worker(n)
            self.lapse(0, LEASE_SECONDS)

    def write(self, which: int, most: int, twice: bool) -> None:
        self.night.write(self.pick(which, lambda worker: worker.unwritten), most, twice=twice)

    def keep(self, which: int, what: str) -> None:
        getattr(self.night, what)(self.pick(which, lambda worker: worker.held))

    def live_or_die(self, n: int, what: str) -> None:
        getattr(self.night, what)(n)

    # --- zombies

    def finish_late(self, ghost: int, symptom: Symptom | None) -> None:
        self.night.late_finish(ghost, symptom)

    def come_late(self, ghost: int, what: str) -> None:
        if what == "lease":
            self.night.late_renewal(ghost)
        else:
            self.night.late_with_permit(ghost, what)

    # --- schedulers

    def lead_and_publish(self, n: int, limit: Amount, ttl_seconds: float) -> None:
        self.night.lead(n)
        self.night.publish(n, limit, ttl_seconds)
        self.night.dispatch(n)

    def publish(self, n: int, limit: Amount, ttl_seconds: float) -> None:
        """By one that may have been replaced without knowing it."""
        self.night.publish(n, limit, ttl_seconds)

    def take_over(self, n: int, limit: Amount) -> None:
        """One leads, stands still for longer than its lease, and goes on as if it still led."""
        self.lead_and_publish(n, limit, LIMIT_SECONDS)
        self.night.pass_seconds(service.LEASE_SECONDS)
        self.lead_and_publish(1 - n, CAPACITY.most_batch, 60.0)
        for late in (self.night.reap, self.night.expire, self.night.tell):
            late(n)
        self.night.publish(n, limit, LIMIT_SECONDS)

    def do(self, n: int, what: str) -> None:
        getattr(self.night, what)(n)

    def lapse(self, n: int, seconds: float) -> None:
        """Nobody renews for a while, and then the reaper comes by."""
        self.night.pass_seconds(seconds)
        self.night.lead(n)
        self.night.reap(n)

    def replace(self, n: int, what: str) -> None:
        getattr(self.night, what)(n)

    # --- chat

    def chat_asks(self, tokens: int) -> None:
        self.night.chat_asks(tokens)

    def rush_hour(self, requests: int) -> None:
        """Batch takes what it may have, and then chat comes."""
        for n in range(WORKERS):
            self.night.claim(n, 4)
            while self.night.admit(n):
                pass
        for _ in range(requests):
            self.night.chat_asks(100)

    def chat(self, permit: int, what: str) -> None:
        match what:
            case "hears":
                self.night.chat_hears(permit)
            case "ends":
                self.night.chat_ends(permit)
            case "renews":
                self.night.chat_renews()
            case "dies":
                self.night.kill_chat()

    # --- a person

    def command(self, verb: str, batch: int) -> None:
        self.night.move(verb.removesuffix(" and die"), batch, killed=verb.endswith("die"))

    def retry(self, batch: int, seconds: int) -> None:
        self.night.retry(batch, seconds)

    # --- time and faults

    def pass_seconds(self, seconds: float) -> None:
        self.night.pass_seconds(seconds)

    def fault(self, what: str, seconds: int) -> None:
        match what:
            case "wipe":
                self.night.wipe_ledger()
            case "forget scripts":
                self.night.permits.forget_scripts()
            case "step back":
                self.night.step_clock(-seconds)
            case "step forward":
                self.night.step_clock(seconds)

    def teardown(self) -> None:
        """Everything ends, unless a rule has just failed."""
        try:
            if sys.exc_info()[0] is None:
                self.night.end()
        finally:
            self.night.close()
