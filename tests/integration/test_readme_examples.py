"""The chat's door as the pages show it: its settings and its two programs, run as they stand there.

Only addresses and the file of keys are put in place.
"""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.ledger import Ledger
from scheduler.permit import Ask, Kind, Permit
from scheduler.pools import capacity_of
from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.answer import AnswerSettings
from tests.engine.process import EngineThread
from tests.engine.service import ServiceSettings
from tests.support.gateways import running, snapshot
from tests.support.valkey import ValkeyServer
from tickets_batch.settings import Settings, load, reveal

CHECKOUT = Path(__file__).resolve().parents[2]
PAGES = "\n".join((CHECKOUT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/chat.md"))
MODEL = "qwen2.5-7b-instruct"
ENGINE = "http://127.0.0.1:8000/v1"
GATEWAY = "http://127.0.0.1:8090/v1"
KEYS = "/etc/tickets-batch/keys"


def block(language: str, words: str) -> str:
    """The one block of the pages in this language that holds these words."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", PAGES, re.M | re.S)
    (found,) = [each for each in blocks if words in each]
    return str(found)


def put(text: str, what: str, instead: str) -> str:
    assert what in text
    return text.replace(what, instead)


@pytest.fixture
def engine() -> Iterator[EngineThread]:
    with EngineThread(EngineProfile.instant(), ServiceSettings(model=MODEL, answer=AnswerSettings())) as engine:
        yield engine


@pytest.fixture
def settings(tmp_path: Path, engine: EngineThread, valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings of the README with the chat page's gateway, from a file where its programs look for one."""
    for name in list(os.environ):
        if name.startswith(("TICKETS_BATCH", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("LLM_API_KEY", "pools-own")
    keys = tmp_path / "keys"
    keys.write_text("one-team\nanother-team\n")
    text = put(block("toml", "[classification]"), ENGINE, engine.base_url)
    text += put(put(block("toml", "keys ="), KEYS, str(keys)), "127.0.0.1:8090", "127.0.0.1:0")
    file = tmp_path / "tickets-batch.toml"
    file.write_text(f'redis_url = "{valkey.url}"\n{text}', encoding="utf-8")
    return load(file)


def run(program: str, folder: Path, api_key: str) -> str:
    """What a program of the pages prints."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "OPENAI_API_KEY": api_key},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def fill(settings: Settings) -> None:
    """The chat uses up all that it may."""
    pool = settings.pool[0]

    async def hold() -> None:
        ledger = Ledger.connect(reveal(settings.redis_url or ""), pool.name, capacity_of(pool), lease_seconds=60)
        for _ in range(capacity_of(pool).most_interactive.slots):
            assert isinstance(await ledger.acquire(Kind.INTERACTIVE, Ask(10, 10)), Permit)
        await ledger.aclose()

    asyncio.run(hold())


def through_the_gateway(settings: Settings, folder: Path, api_key: str) -> str:
    program = block("python", "openai.OpenAI(")
    with running(settings) as address:
        return run(put(program, GATEWAY, f"{address}/v1"), folder, api_key)


def through_the_guard(engine: EngineThread, folder: Path) -> str:
    return run(put(block("python", "Guard.connect("), ENGINE, engine.base_url), folder, "caller")


def assert_admitted_once(settings: Settings) -> None:
    seen = snapshot(settings)
    assert (seen.arrivals, seen.first_tokens, seen.interactive.slots) == (1, 1, 0)


def test_a_program_of_the_gateways_is_answered(settings: Settings, engine: EngineThread, tmp_path: Path) -> None:
    assert through_the_gateway(settings, tmp_path, "another-team")
    (row,) = engine.log()
    assert row.outcome == "ok"
    assert row.output_tokens <= settings.gateway.max_output_tokens
    assert_admitted_once(settings)


def test_it_is_told_when_to_come_again(settings: Settings, tmp_path: Path) -> None:
    fill(settings)
    assert re.fullmatch(r"come again in [1-3] s\n", through_the_gateway(settings, tmp_path, "one-team"))


def test_a_program_of_the_guards_is_answered(settings: Settings, engine: EngineThread, tmp_path: Path) -> None:
    assert settings.pool[0].name == "gpu"
    assert through_the_guard(engine, tmp_path)
    (row,) = engine.log()
    assert row.outcome == "ok"
    assert_admitted_once(settings)


def test_it_too_is_told_when_to_come_again(settings: Settings, engine: EngineThread, tmp_path: Path) -> None:
    fill(settings)
    assert re.fullmatch(r"come again in \d\.\d s\n", through_the_guard(engine, tmp_path))
    assert not engine.log()
