"""A night whose model a chat shares: each service a process of its own, and the engine's view of who was in it."""

import asyncio
import signal
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from jobs.prompt import build_messages
from jobs.spec import ClassificationSpec
from scheduler.capacity import Amount
from scheduler.pools import capacity_of, found_ledgers
from scheduler.simulation.site import Site
from scheduler.simulation.tickets import Ticket
from scheduler.snapshot import Snapshot
from tests.engine.log import LogRow
from tests.engine.process import EngineHandle
from tests.support.command import Command
from tests.support.gateways import LISTENS, snapshot
from tests.support.night import LABELS, Night
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until
from tickets_batch.settings import Settings, to_environment

Service = Literal["gateway", "scheduler", "worker"]
SERVICES: tuple[Service, ...] = ("gateway", "scheduler", "worker")
START_SECONDS = 40.0  # for the slowest machine


class SharedNight:
    """The product on one shared pool of a site's capacity; what was started ends with the night that it is made of."""

    def __init__(
        self,
        night: Night,
        site: Site,
        base_url: str,
        valkey: ValkeyServer,
        *,
        signals: Sequence[str] = ("ledger",),
        ticket: Ticket,
        request_timeout_seconds: float = 30.0,
    ) -> None:
        self.night = night
        self.spec = ClassificationSpec(
            labels={label: f"about {label}" for label in LABELS},
            instructions="You sort a shop's support tickets.",
            max_output_tokens=ticket.output_tokens,
        )
        self._ticket = ticket
        capacity = site.capacity
        self.settings = Settings(
            home=night.home,
            redis_url=valkey.url,
            source={"path": "tickets.csv"},
            classification={
                "labels": dict(self.spec.labels),
                "instructions": self.spec.instructions,
                "max_output_tokens": ticket.output_tokens,
            },
            pool=[
                {
                    "name": "gpu",
                    "base_url": base_url,
                    "model": "test-model",
                    "engine": "vllm",
                    "capacity": _amount(capacity.total),
                    "protected": {
                        "interactive": _amount(capacity.protected_interactive),
                        "batch": _amount(capacity.floor),
                    },
                    "ttft_target_seconds": site.ttft_target_seconds,
                    "request_timeout_seconds": request_timeout_seconds,
                    "signal": [{"type": kind} for kind in signals],
                }
            ],
            gateway={"listen": "127.0.0.1:0", "wait_ms": round(site.door_seconds * 1000)},
            worker={"processes": 2, "lease_seconds": 4, "stop_grace_seconds": 2},
            scheduler={"holdout": 0},
        )
        night.environment |= to_environment(self.settings)
        self.services: dict[Service, Command] = {}

    @property
    def floor(self) -> int:
        """Slots that are batch's own."""
        return capacity_of(self.settings.pool[0]).floor.slots

    @property
    def slots(self) -> int:
        return self.settings.pool[0].capacity.slots

    # --- what runs

    def start(self, *services: Service) -> None:
        """Begin services, and wait for the gateway where it is among them."""
        for service in services:
            self.services[service] = self.night.start(service)
        if "gateway" in services:
            wait_until(lambda: self._listening(), "the gateway to listen", START_SECONDS)

    def begin(self, tickets: int, services: Sequence[Service] = SERVICES) -> None:
        """Submit tickets and start services; the Valkey is new, so that batch need not wait for one lease."""
        self.night.tickets(self.bodies(tickets))
        asyncio.run(found_ledgers(self._redis_url, self.settings.pool))
        self.start(*services)
        wait_until(lambda: self.night.processes("scheduler"), "the scheduler", START_SECONDS)
        self.night.run("submit", "--all", timeout_seconds=START_SECONDS)  # exits 1 where the scheduler was not seen yet

    def stop(self, *services: Service) -> None:
        """End services in good order."""
        for service in services:
            self.services[service].send(signal.SIGTERM)
        for service in services:
            self.services.pop(service).wait(20)

    @property
    def gateway(self) -> str:
        """The address of the chat's door, without /v1."""
        return self._listening() or ""

    def snapshot(self) -> Snapshot:
        """Who holds what, by the ledger."""
        return snapshot(self.settings)

    def bodies(self, count: int) -> list[str]:
        """Texts that make a prompt of the ticket's size, as the test engine counts it."""
        number = "Ticket 000000:"
        empty = "".join(f"<|{each['role']}|>\n{each['content']}\n" for each in build_messages(self.spec, "", number))
        size = 4 * self._ticket.prompt_tokens - len(empty)
        assert size > 0, f"a prompt is at least {len(empty) // 4 + 1} tokens"
        text = (" My parcel has not come, and I have been waiting for more than a week." * (size // 60 + 1))[:size]
        text = text[:-1] + "."  # white space at the end would be cut off
        return [f"Ticket {each:06d}:{text}" for each in range(count)]

    # --- inside

    @property
    def _redis_url(self) -> str:
        return str(self.night.environment["TICKETS_BATCH__REDIS_URL"])

    def _listening(self) -> str | None:
        command = self.services["gateway"]
        assert command.code is None, command.err
        found = [line.partition(LISTENS)[2] for line in command.talk if LISTENS in line]
        return found[0].removesuffix("/v1") if found else None


def batch_now(engine: EngineHandle) -> int:
    """Tickets that are at an engine now, running or waiting."""
    seen: dict[str, Any] = engine.state()["classes"].get("batch", {})
    return int(seen.get("running", 0)) + int(seen.get("waiting", 0))


def at_engine(rows: Iterable[LogRow], begin: float, end: float) -> list[tuple[float, int]]:
    """How many requests an engine held from which moment on, by the log of those that have ended."""
    steps = [(begin, 0)]
    for row in rows:
        assert row.ended_at is not None
        if row.arrived_at < end and row.ended_at > begin:
            steps += [(max(begin, row.arrived_at), 1), (row.ended_at, -1)]
    held, moments = 0, {}
    for at, step in sorted(steps):
        held += step
        moments[at] = held  # what comes and goes at one moment is seen together
    return [(at, held) for at, held in moments.items() if at < end]


def most_at_engine(rows: Iterable[LogRow], begin: float, end: float) -> int:
    """The most requests that an engine held at one moment of a time."""
    return max(held for _, held in at_engine(rows, begin, end))


def of_class(rows: Iterable[LogRow], klass: Literal["batch", "interactive"]) -> list[LogRow]:
    """The requests of one class."""
    return [row for row in rows if row.klass == klass]


def _amount(amount: Amount) -> dict[str, int]:
    return {"slots": amount.slots, "tokens": amount.tokens}
