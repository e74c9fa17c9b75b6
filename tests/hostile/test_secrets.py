"""Where secrets must not be: command lines, logs, reports, results, and the environment of who does not need them."""

from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.engine.process import EngineProcess
from tests.support.night import Night, verb_of
from tests.support.wait import wait_until
from tickets_batch.local import valkey
from tickets_batch.local.environment import child_environment
from tickets_batch.local.home import Home
from tickets_batch.settings import Settings

KEY, CALLERS, HOOK, SOURCE = "sk-pool-31415926", "sk-caller-27182818", "http://127.0.0.1:9/hook-16180339", "pw-14142135"
TEXT = "My card number is 4111 1111 1111 1111 and my parcel is late"
PLACES = {
    KEY: {"gateway", "scheduler", "worker"},
    CALLERS: {"gateway"},
    HOOK: {"scheduler"},
    SOURCE: set(),
}
SETTINGS = """
[gateway]
listen = "127.0.0.1:0"
keys = { env = "CALLERS" }
[alert]
webhook = { env = "HOOK" }
[sink]
url = { env = "SINK_URL" }
table = "labels"
columns = { custom_id = "id", label = "label" }
"""
SERVICES = {"gateway", "scheduler", "worker", "valkey"}


def test_the_embedded_server_is_told_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_API_KEY", KEY)
    home = Home(tmp_path / "home")
    home.make()
    given = valkey.prepare(home).environment
    assert given is not None
    assert KEY not in given.values()
    assert given["PATH"]


@pytest.mark.parametrize(("service", "left"), [("gateway", 2), ("scheduler", 3), ("worker", 2), (None, 5)])
def test_a_service_is_given_the_secrets_that_it_reads(
    service: str | None, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the keys of model and callers, the webhook, and the URLs of the source and the database."""
    for name in "ABCDE":
        monkeypatch.setenv(name, f"secret-{name}")
    pool = {"name": "gpu", "base_url": "http://127.0.0.1:9/v1", "model": "m", "capacity": {"slots": 4}}
    settings = Settings.model_validate(
        {
            "pool": [pool | {"api_key": {"env": "A"}}],
            "gateway": {"keys": {"env": "B"}},
            "alert": {"webhook": {"env": "C"}},
            "source": {"url": {"env": "D"}, "query": "SELECT 1"},
            "database_url": {"env": "E"},
        }
    )
    given = child_environment(settings, service)
    assert sum(value.startswith("secret-") for value in given.values()) == left


@pytest.fixture
def guarded(tmp_path: Path) -> "Night":
    night = Night(tmp_path)
    night.environment |= {
        "LLM_API_KEY": KEY,
        "CALLERS": CALLERS,
        "HOOK": HOOK,
        "SINK_URL": f"postgresql+psycopg://u:{SOURCE}@127.0.0.1:9/d",
    }
    return night


def environment_of(process: psutil.Process) -> str:
    return Path(f"/proc/{process.pid}/environ").read_bytes().decode(errors="replace")


@pytest.mark.long
def test_no_secret_is_where_it_is_not_needed(guarded: Night) -> None:
    night = guarded
    try:
        with EngineProcess() as engine:
            night.configure(engine.base_url, slots=8, chat=2, processes=1)
            settings = night.folder / "tickets-batch.toml"
            text = settings.read_text().replace('engine = "vllm"', 'engine = "vllm"\napi_key = { env = "LLM_API_KEY" }')
            settings.write_text(text + SETTINGS)
            night.tickets(f"{TEXT} {number}" for number in range(20))
            up = night.start("up")
            wait_until(lambda: set(map(verb_of, night.processes())) >= SERVICES, "every service to run", 60)
            batch = night.batch_id(night.run("submit", "--all", "--json"))
            night.wait_until_done(20)
            for process in night.processes():
                verb, shown = verb_of(process), " ".join(process.cmdline())
                environment = environment_of(process)
                for secret, readers in PLACES.items():
                    assert secret not in shown, verb
                    is_there = secret in environment
                    assert not is_there or verb in readers or process.pid == up.pid or process.ppid() == up.pid, verb
                    if verb in SERVICES and "up" not in process.cmdline():
                        assert is_there == (verb in readers), (verb, secret)
            night.run("report", batch, "-o", "report.html", code=0)
            night.run("status", batch, "--json", code=0)
            night.run("results", batch, "--format", "csv", "-o", "results.csv", code=0)
    finally:
        night.close()
    written = [path for path in night.folder.rglob("*") if path.is_file() and path.name != "tickets.csv"]
    assert len(written) > 8
    for path in written:
        held = path.read_bytes()
        for secret in PLACES:
            assert secret.encode() not in held, path
        if "tickets-batch.db" not in path.name:  # the tickets live there
            assert b"4111 1111" not in held, path
            assert b"parcel is late" not in held, path
