"""`status` of pools whose ledgers are at work: a shared one that the chat uses, and one of batch's own."""

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from scheduler.capacity import Amount
from scheduler.ledger import Ledger
from scheduler.permit import Ask, Kind, Outlook, Permit, PublishedLimit
from scheduler.pools import capacity_of
from tests.support.in_process import directory
from tests.support.valkey import ValkeyServer
from tickets_batch.cli.run import run
from tickets_batch.settings import Settings, load

SETTINGS = """
timezone = "Europe/Berlin"
home = "home"
[source]
path = "tickets.csv"
[classification.labels]
billing = "charges"
shipping = "delivery"
[[pool]]
name = "gpu"
base_url = "http://127.0.0.1:9/v1"
model = "test-model"
capacity = { slots = 20, tokens = 60000 }
protected = { interactive = { slots = 8, tokens = 24000 }, batch = { slots = 2, tokens = 6000 } }
signal = [{ type = "ledger" }]
[[pool]]
name = "deep"
base_url = "http://127.0.0.1:9/v1"
model = "large-model"
capacity = { slots = 64, tokens = 400000 }
protected = { batch = { slots = 64, tokens = 400000 } }
"""


class Here:
    """The command in a directory of its own, and the ledgers of its pools."""

    def __init__(self, capsys: pytest.CaptureFixture[str], redis_url: str) -> None:
        self._capsys = capsys
        self._redis_url = redis_url

    def __call__(self, *arguments: str) -> str:
        run(arguments)
        return self._capsys.readouterr().out

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    def settings(self) -> Settings:
        return load()

    def publish(self, pool: str, limit: Amount, note: dict[str, Any], ttl_seconds: float = 60) -> None:
        """What the scheduler's control loop does for a pool."""

        async def act(ledger: Ledger) -> None:
            published = PublishedLimit(limit, 3_000, Outlook(high=Amount(4, 12_000), reserve=1))
            await ledger.publish(published, ttl_seconds, 1, json.dumps(note))

        self._with(pool, act)

    def admit(self, pool: str, kind: Kind, *asks: Ask) -> None:
        """Requests in flight, the last of them without a first token."""

        async def act(ledger: Ledger) -> None:
            for number, ask in enumerate(asks, 1):
                permit = await ledger.acquire(kind, ask)
                assert isinstance(permit, Permit)
                if number < len(asks):
                    await ledger.first_token(permit)

        self._with(pool, act)

    def observe(self, pool: str, amount: Amount) -> None:
        """What the control loop tells of an engine's own metrics."""

        async def act(ledger: Ledger) -> None:
            await ledger.observe(amount, 60)

        self._with(pool, act)

    def _with(self, name: str, act: Any) -> None:
        async def whole() -> None:
            pool = next(pool for pool in self.settings().pool if pool.name == name)
            ledger = Ledger.connect(self._redis_url, name, capacity_of(pool), lease_seconds=60)
            await ledger.found()
            await act(ledger)
            await ledger.aclose()

        asyncio.run(whole())


@pytest.fixture
def here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], valkey: ValkeyServer
) -> Iterator[Here]:
    with directory(tmp_path, monkeypatch, SETTINGS):
        monkeypatch.setenv("TICKETS_BATCH__REDIS_URL", valkey.url)
        Path("tickets.csv").write_text("id,subject,body\nT1,,Where is my parcel?\n")
        made = Here(capsys, valkey.url)
        made("submit", "--all")
        yield made


def noted(**load: Any) -> dict[str, Any]:
    sources = [{"name": "ledger", "age_seconds": 0.2, "is_fresh": True}]
    whole = {"sources": sources, "is_blind": False, "is_congested": False, **load}
    return {"rule": "full", "why": "the chat leaves it free", "load": whole, "at": time.time()}


def busy(here: Here) -> None:
    """The chat holds 2 slots of the shared pool, and batch 1 of its own."""
    here.publish("gpu", Amount(12, 36_000), noted())
    here.publish("deep", Amount(64, 400_000), noted(sources=[]))
    here.admit("gpu", Kind.INTERACTIVE, *[Ask(500, 500)] * 2)
    here.admit("deep", Kind.BATCH, Ask(3_000, 400))


def test_json_says_of_each_pool_what_is_known(here: Here) -> None:
    busy(here)
    gpu, deep = here.json("status", "latest")["pools"]
    assert (gpu["name"], deep["name"]) == ("gpu", "deep")
    assert (gpu["condition"], deep["condition"]) == ("shared", "dedicated")
    assert gpu["limit"] == {"slots": 12, "tokens": 36_000, "rule": "full", "reason": "the chat leaves it free"}
    assert deep["limit"]["rule"] == "dedicated"
    assert gpu["in_flight"]["interactive"] == {"slots": 2, "tokens": 2_000}
    assert deep["in_flight"]["batch"] == {"slots": 1, "tokens": 3_400}
    assert deep["prefill"] == {"tokens": 3_000, "budget_tokens": 3_000}
    assert (gpu["load"]["waiting"], gpu["load"]["ttft_seconds"]["count"]) == (1, 1)
    assert gpu["load"]["oldest_waiting_seconds"] > 0
    assert [(source["name"], source["is_fresh"]) for source in gpu["load"]["sources"]] == [("ledger", True)]
    assert (gpu["arrivals"], gpu["refused"], gpu["revoked"]) == (2, 0, 0)
    assert (gpu["capacity"], gpu["floor"]) == ({"slots": 20, "tokens": 60_000}, {"slots": 2, "tokens": 6_000})


def test_json_sums_up_all_pools(here: Here) -> None:
    busy(here)
    shown = here.json("status", "latest")
    assert shown["limit"] == {
        "slots": 12 + 64,
        "tokens": 36_000 + 400_000,
        "reason": "gpu: the chat leaves it free; deep: all of the pool is batch's own",
    }
    assert shown["in_flight"] == {
        "interactive": {"slots": 2, "tokens": 2_000},
        "batch": {"slots": 1, "tokens": 3_400},
    }
    load = shown["load"]
    assert (load["interactive_waiting"], load["is_blind"], load["refused"]) == (1, False, 0)
    assert [(source["pool"], source["name"]) for source in load["sources"]] == [("gpu", "ledger")]


def test_words_fit_eighty_columns(here: Here) -> None:
    busy(here)
    lines = here("status", "latest").splitlines()
    assert max(map(len, lines)) <= 80
    shown = " ".join(" ".join(lines).split())
    assert "pool gpu batch holds 0 of 12 slots, 0 of 36,000 tokens limit the chat leaves it free" in shown
    assert "chat 2 slots, 2,000 tokens in flight; 1 without a first token" in shown
    assert "pool deep batch holds 1 of 64 slots, 3,400 of 400,000 tokens limit all of the pool is batch's own" in shown


def test_a_blind_pool_says_what_to_do(here: Here) -> None:
    here.publish("gpu", Amount(2, 6_000), noted(is_blind=True))
    shown = here.json("status", "latest")
    assert shown["load"]["is_blind"] is True
    assert shown["pools"][0]["limit"]["rule"] == "blind"
    assert "add a [[pool.signal]]" in shown["limit"]["reason"]


def test_a_limit_that_ran_out_is_not_shown_as_one_in_force(here: Here) -> None:
    here.publish("gpu", Amount(12, 36_000), {**noted(), "at": time.time() - 30}, ttl_seconds=0)
    pool = here.json("status", "latest")["pools"][0]
    assert (pool["condition"], pool["published"]) == ("stale", None)
    assert {axis: pool["limit"][axis] for axis in ("slots", "tokens")} == {"slots": 2, "tokens": 6_000}
    assert pool["limit"]["reason"].startswith("no fresh limit for 3")
    assert pool["load"]["sources"][0]["is_fresh"] is False
    assert pool["published_at"] is not None


def test_hours_are_shown_with_their_next_change(here: Here) -> None:
    hours = '["00:00-00:01"]' if datetime.now(here.settings().zone).hour >= 12 else '["23:58-23:59"]'
    text = SETTINGS.replace('name = "gpu"', f'name = "gpu"\nshared_hours = {hours}')
    Path("tickets-batch.toml").write_text(text)
    here.publish("gpu", Amount(2, 6_000), noted())
    pool = here.json("status", "latest")["pools"][0]
    assert pool["condition"] == "closed"
    opens = datetime.fromisoformat(pool["next_change_at"])
    assert opens.astimezone(here.settings().zone).strftime("%H:%M") == hours[2:7]


def test_a_pool_that_left_the_settings_is_listed_as_unknown(here: Here) -> None:
    Path("tickets-batch.toml").write_text(SETTINGS.replace('name = "deep"', 'name = "other"'))
    _, deep = here.json("status", "latest")["pools"]
    assert deep["name"] == "deep"
    assert {deep[key] for key in deep if key != "name"} == {None}
    assert "pool deep  its limit is not known: it is not in these settings" in here("status", "latest")


def test_what_an_engine_shows_is_fresh_beside_a_pool_that_needs_no_engine(here: Here) -> None:
    busy(here)
    assert here.json("status", "latest")["load"]["observed_is_fresh"] is False
    here.observe("gpu", Amount(3, 3_000))
    assert here.json("status", "latest")["load"]["observed_is_fresh"] is True
