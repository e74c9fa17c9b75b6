"""One run: a batch and a chat under way, the plan's faults in their time, everything healed, and the evidence."""

import re
import time
from collections.abc import Callable
from typing import Any

from tests.chaos.evidence import Evidence, Incident, batch_state, done, inconsistency, jobs_left
from tests.chaos.plan import EVERYTHING, PARTS, SERVERS, Fault, Plan
from tests.chaos.stillness import Stillness
from tests.chaos.world import SPEC, World
from tests.engine.faults import Fault as EngineFault
from tests.engine.faults import Rule
from tests.support.chat import Chat, steady
from tests.support.night import as_sent
from tests.support.shift import submit, with_spec
from tests.support.wait import wait_until

TICK_SECONDS = 0.05
FIRST_ANSWER_SECONDS = 100.0  # who dispatches may just have begun to wait on a half-open connection
END_SECONDS = 120.0  # for a batch after its last fault: probes of a blocked pool come twice as late each time
PERMIT_SECONDS = 12.0  # two leases and some: of whom a fault has robbed of its holder
CHAT_PATIENCE_SECONDS = 25.0

Heal = Callable[[], None]
_TRACEBACK = re.compile(
    r"^Traceback .*?^(\w[\w.]*(?:Error|Exception|Interrupt|Exit|\w+): ?.*?)$", re.MULTILINE | re.DOTALL
)


def play(world: World, plan: Plan) -> Evidence:
    """Run a plan in a world on its kind of database; the world is as good as new after it."""
    assert world.kind == plan.database
    with Stillness() as stillness:
        evidence = _play(world, plan)
    return evidence.changed(incidents=(*evidence.incidents, *stillness.found))


def _play(world: World, plan: Plan) -> Evidence:
    world.empty()
    bodies = [f"Where is parcel {number} of order {plan.seed}-{number * 7919}?" for number in range(plan.tickets)]
    batch_id = submit(world.db, bodies, **with_spec(SPEC))
    tickets = {f"t-{number}": as_sent(body) for number, body in enumerate(bodies)}
    people = steady(plan.chat_per_second, prompt_tokens=100, output_tokens=20, seed=plan.seed)
    with Chat(world.gateway, people, patience_seconds=CHAT_PATIENCE_SECONDS) as chat:
        _wait(world, lambda: done(world.db, batch_id) > 0, "a first ticket to be done", FIRST_ANSWER_SECONDS)
        incidents = _Timeline(world, plan).run()
        _wait(world, lambda: _has_ended(world, batch_id), "the batch to end", END_SECONDS, may_fail=True)
        chat.leave()
    _wait(world, lambda: _holds_nothing(world), "every permit to be given back", PERMIT_SECONDS, may_fail=True)
    wait_until(lambda: world.engine.busy() == 0, "the engine to be idle", 20, TICK_SECONDS)
    left = jobs_left(world.db, batch_id)
    return Evidence(
        plan=plan,
        tickets=tickets,
        batch_state=batch_state(world.db, batch_id),
        jobs=tuple(left),
        inconsistency=inconsistency(world.db),
        engine=tuple(world.calls()),
        chat=tuple(chat.felt),
        permits=world.snapshot(),
        incidents=tuple(incidents),
        tracebacks=tuple(_tracebacks(world.talk())),
        ended=tuple(world.ended),
    )


class _Timeline:
    """Begins each fault when it is due and heals it in time; tends the parts meanwhile."""

    def __init__(self, world: World, plan: Plan) -> None:
        self._world = world
        self._faults = list(plan.faults)
        self._seed = plan.seed
        self._healing: list[tuple[float, float, Fault, Heal]] = []  # due at, began at (epoch)
        self._returning: list[tuple[float, Fault]] = []  # began at; healed, but its part is not there yet
        self._rules: list[tuple[Fault, Rule]] = []
        self._engine_knows = True  # the rules as they are now
        self._incidents: list[Incident] = []

    def run(self) -> list[Incident]:
        """Everything that happened; when it returns, all is healed and every part is there."""
        began = time.monotonic()
        while self._faults or self._healing or self._returning:
            now = time.monotonic() - began
            for entry in [each for each in self._healing if each[0] <= now]:
                self._healing.remove(entry)
                _, began_at, fault, heal = entry
                heal()
                if fault.kind == "kill" and fault.target == "engine":
                    self._engine_knows = False
                self._returning.append((began_at, fault))
            while self._faults and self._faults[0].at_seconds <= now:
                fault = self._faults.pop(0)
                if fault.kind == "disk full" and not self._world.disk_of(fault.target).can_be_filled:
                    continue
                began_at = time.time()
                self._healing.append((now + fault.seconds, began_at, fault, self._begin(fault)))
            self._tell_engine()
            self._world.tend()
            for began_at, fault in [each for each in self._returning if self._is_back(each[1])]:
                self._returning.remove((began_at, fault))
                self._incidents.append(Incident(fault, began_at, time.time()))
            if now > END_SECONDS:
                raise AssertionError(f"not back: {[str(fault) for _, fault in self._returning]}")
            time.sleep(TICK_SECONDS)
        self._tell_engine()
        return self._incidents

    def _is_back(self, fault: Fault) -> bool:
        return all(map(self._world.is_up, _hit(fault)))

    def _begin(self, fault: Fault) -> Heal:
        world, target = self._world, fault.target
        match fault.kind:
            case "kill":
                return world.kill(target)
            case "pause":
                return world.pause(target)
            case "restart valkey":
                return world.restart_valkey(keeps_data=bool(fault.detail["keeps_data"]))
            case "cut" | "refuse" | "stall" | "half-open":
                return world.links.begin(fault.kind, target)
            case "disk full":
                disk = world.disk_of(target)
                disk.fill()
                return disk.clear
            case "clock step":
                return world.step_clock(target, fault.detail["step_seconds"])
            case "engine says":
                return self._script(fault)
            case _:
                raise ValueError(fault.kind)

    def _script(self, fault: Fault) -> Heal:
        details: dict[str, Any] = dict(fault.detail)
        rate = details.pop("rate")
        entry = (fault, Rule(EngineFault(fault.target, **details), rate=rate))
        self._rules.append(entry)
        self._engine_knows = False

        def heal() -> None:
            self._rules.remove(entry)
            self._engine_knows = False

        return heal

    def _tell_engine(self) -> None:
        """The rules, as soon as it listens."""
        if not self._engine_knows and self._world.engine_listens:
            self._world.engine.set_faults(*(rule for _, rule in self._rules), seed=self._seed)
            self._engine_knows = True


def _hit(fault: Fault) -> tuple[str, ...]:
    """The parts and servers that are there again when it is over."""
    if fault.kind == "restart valkey":
        return ("valkey",)
    hit = (*PARTS, "valkey", "postgresql") if fault.target == EVERYTHING else (fault.target,)
    return tuple(name for name in hit if name in (*PARTS, *SERVERS))


def _wait(
    world: World, condition: Callable[[], bool], what: str, timeout_seconds: float, *, may_fail: bool = False
) -> None:
    """Wait, and tend the parts meanwhile; where it `may_fail` the judge will say so."""

    def tended() -> bool:
        world.tend()
        return condition()

    try:
        wait_until(tended, what, timeout_seconds, TICK_SECONDS)
    except AssertionError:
        if not may_fail:
            raise


def _has_ended(world: World, batch_id: str) -> bool:
    return world.reaches_database() and batch_state(world.db, batch_id).is_final and world.is_at_work()


def _holds_nothing(world: World) -> bool:
    now = world.snapshot()
    return not (now.batch.slots or now.interactive.slots or now.reclaiming.slots or now.prefill_tokens)


def _tracebacks(talk: dict[str, str]) -> list[str]:
    """The last line of every traceback in the parts' logs, each once."""
    found = {f"{name}: {match[1][:200]}" for name, log in talk.items() for match in _TRACEBACK.finditer(log)}
    return sorted(found)
