"""Settings and command lines of somebody else: each is refused in a line that names the place, and tells no secret."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.in_process import Here, directory
from tickets_batch.errors import SettingsError
from tickets_batch.settings import load

POOL = '[[pool]]\nname = "gpu"\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "m"\ncapacity = { slots = 4 }\n'
KEY = "sk-live-0123456789"


class Wrong(NamedTuple):
    """What a settings file holds, and what the refusal says."""

    name: str
    text: str | bytes
    words: str


def pool(old: str, new: str) -> str:
    assert old in POOL
    return POOL.replace(old, new)


SETTINGS = [
    Wrong("no TOML", "{{{{", "is not valid TOML"),
    Wrong("not UTF-8", b"home = '\xff\xfe'", "is not UTF-8 text"),
    Wrong("NUL", b'home = "a\0b"', "is not valid TOML"),
    Wrong("deep nesting", "x = " + "[" * 100_000, "nested too deeply"),
    Wrong("deep tables", ".".join(["a"] * 2_000) + " = 1", "that many dots"),
    Wrong("deep tables in quotes", "x = { " + '"a" . ' * 30_000 + "b = 1 }", "that many dots"),
    Wrong("a megabyte", "# " + "a" * 1_000_000, "is larger than 256 KB"),
    Wrong("NUL by its number", 'home = "a\\u0000b"', "home holds a NUL"),
    Wrong("NUL in a list", pool('"m"', '"m\\u0000"'), "pool.0.model holds a NUL"),
    Wrong("value of two lines and colours", 'timezone = "a\\n\\u001b[31mb"', 'timezone = "a  [31mb"'),
    Wrong("the same key twice", 'home = "a"\nhome = "b"', "is not valid TOML"),
    Wrong("a key by another name", 'hom = "a"', 'did you mean "home"?'),
    Wrong("prototype", "[__proto__]\nadmin = true", "__proto__ is not a setting"),
    Wrong("endless key", "x" * 100_000 + " = 1", "is not a setting"),
    Wrong("endless value", f'timezone = "{"x" * 100_000}"', "timezone"),
    Wrong("time zone of a file", 'timezone = "../../etc/passwd"', "timezone"),
    Wrong("time zone of a device", 'timezone = "/dev/zero"', "timezone"),
    Wrong("time zone of a NUL", 'timezone = "a\\u0000b"', "timezone"),
    Wrong("deadline of words", 'deadline = "tomorrow"', "deadline"),
    Wrong("deadline beyond the day", 'deadline = "25:61"', "deadline"),
    Wrong("URL of a file", pool("http://127.0.0.1:9/v1", "file:///etc/passwd"), "pool.0.base_url"),
    Wrong("URL of a socket", pool("http://127.0.0.1:9/v1", "unix:///run/docker.sock"), "pool.0.base_url"),
    Wrong("URL of nothing", pool("http://127.0.0.1:9/v1", "http://"), "pool.0.base_url"),
    Wrong("URL of two lines", pool("http://127.0.0.1:9/v1", "http://a/\\r\\nx: y"), "pool.0.base_url"),
    Wrong("URL with a password", pool("http://", f"http://user:{KEY}@"), "holds a password"),
    Wrong("URL with a password and a slash too few", pool("http://", f"http:/user:{KEY}@"), "pool.0.base_url"),
    Wrong("database with a password", f'database_url = "postgresql+psycopg://u:{KEY}@h/d"', "holds a password"),
    Wrong("database with a password behind", f'database_url = "postgresql://h/d?password={KEY}"', "holds a password"),
    Wrong("Redis with a password", f'redis_url = "rediss://:{KEY}@h/0"', "holds a password"),
    Wrong("source with a password", f'[source]\nurl = "mysql://u:{KEY}@h/d"\nquery = "SELECT 1"', "holds a password"),
    Wrong("key in the file", POOL + f'api_key = "{KEY}"', "only a reference to the key"),
    Wrong("gateway's keys in the file", f'[gateway]\nkeys = "{KEY}"', "only a reference to the keys"),
    Wrong("webhook in the file", f'[alert]\nwebhook = "https://h/{KEY}"', "only a reference to the URL"),
    Wrong("two references", POOL + 'api_key = { env = "A", file = "/b" }', "give exactly one of"),
    Wrong("name of a path", pool('"gpu"', '"../gpu"'), "1 to 40 letters"),
    Wrong("name of two lines", pool('"gpu"', '"a\\nb"'), "1 to 40 letters"),
    Wrong("two pools of one name", POOL + POOL, "two pools have the same name"),
    Wrong("slots below nothing", pool("slots = 4", "slots = -4"), "pool.0.capacity"),
    Wrong("slots in words", pool("slots = 4", 'slots = "many"'), "pool.0.capacity.slots"),
    Wrong("slots that are true", pool("slots = 4", "slots = 4.5"), "pool.0.capacity.slots"),
    Wrong("countless slots", pool("slots = 4", "slots = 99999999999999999999999999"), "pool.0.capacity.slots"),
    Wrong("time-out of nothing", POOL + "request_timeout_seconds = 0", "request_timeout_seconds"),
    Wrong("time-out that is none", POOL + "request_timeout_seconds = nan", "request_timeout_seconds"),
    Wrong("time-out without end", POOL + "request_timeout_seconds = inf", "request_timeout_seconds"),
    Wrong("lease without end", "[worker]\nlease_seconds = inf", "worker.lease_seconds"),
    Wrong("grace that is none", "deadline_grace_seconds = nan", "deadline_grace_seconds"),
    Wrong("target without end", POOL + "ttft_target_seconds = inf", "ttft_target_seconds"),
    Wrong("door of no port", '[gateway]\nlisten = "everywhere"', "HOST:PORT"),
    Wrong("no body allowed", "[gateway]\nmax_body_bytes = -1", "gateway.max_body_bytes"),
    Wrong("labels of nothing", '[classification]\nlabels = { "" = "", b = "" }', "classification.labels"),
    Wrong("one label", '[classification]\nlabels = { a = "" }', "classification.labels"),
    Wrong("pool that is no list", 'pool = "gpu"', "pool"),
    Wrong("source that is no table", "source = 7", "source"),
]  # fmt: skip


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting from the environment."""
    for name in list(os.environ):
        if name.startswith(("TICKETS_BATCH", "OPENAI_")):
            monkeypatch.delenv(name)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("wrong", [pytest.param(wrong, id=wrong.name) for wrong in SETTINGS])
def test_wrong_settings_are_refused_by_name_and_without_secrets(wrong: Wrong, tmp_path: Path) -> None:
    file = tmp_path / "tickets-batch.toml"
    file.write_bytes(wrong.text if isinstance(wrong.text, bytes) else wrong.text.encode())
    with pytest.raises(SettingsError) as refused:
        load(file)
    said = str(refused.value)
    assert wrong.words in said
    assert KEY not in said
    assert len(said) < len(wrong.text) + 2000  # what was written, at most once
    assert all(line.isprintable() for line in said.split("\n"))


VARIABLES = {
    "no JSON": ("TICKETS_BATCH__POOL", "[{", "TICKETS_BATCH__POOL is not JSON"),
    "deep nesting": ("TICKETS_BATCH__POOL", "[" * 50_000, "TICKETS_BATCH__POOL"),
    "another key": ("TICKETS_BATCH__PATH", "/tmp", "names no setting"),
    "a part of a secret": ("TICKETS_BATCH__ALERT__WEBHOOK", KEY, "alert.webhook"),
    "half a letter": ("TICKETS_BATCH__POOL", '[{"model": "\\ud800"}]', "pool.0.model holds a NUL or half"),
    "a list for a number": ("TICKETS_BATCH__GATEWAY__MAX_BODY_BYTES", "[1]", "max_body_bytes"),
    "another file": ("TICKETS_BATCH_CONFIG", "/proc/self/mem", "cannot read the settings"),
}


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("name", VARIABLES)
def test_wrong_variables_are_refused_by_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variable, value, words = VARIABLES[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError) as refused:
        load()
    assert words in str(refused.value)
    assert KEY not in str(refused.value)


ARGUMENTS: dict[str, tuple[str, ...]] = {
    "batch of SQL": ("status", "x'; DROP TABLE batches; --"),
    "batch of a path": ("results", "../../etc/passwd"),
    "batch of an option": ("cancel", "--", "--all"),
    "batch of nothing": ("status", ""),
    "endless batch": ("report", "x" * 100_000),
    "batch with colours": ("pause", "\x1b[31mred\x1b[0m"),
    "batch with half a letter": ("resume", "a\udcffb"),
    "batch with a wildcard": ("retry", "%"),
    "date of SQL": ("submit", "--date", "2026-11-30'; --"),
    "date of no calendar": ("submit", "--date", "2026-02-30"),
    "date beyond years": ("submit", "--date", "99999-01-01"),
    "file of a device": ("submit", "--all", "--input", "/dev/zero"),
    "file of a process": ("submit", "--all", "--input", "/proc/self/mem"),
    "file of a folder": ("submit", "--all", "--input", "/etc"),
    "file of an endless name": ("submit", "--all", "--input", "x" * 5000 + ".csv"),
    "file over the network": ("submit", "--all", "--input", "http://127.0.0.1:9/tickets.csv"),
    "deadline of words": ("submit", "--all", "--deadline", "$(date)"),
    "labels of nothing": ("submit", "--all", "--labels", ",,,"),
    "endless label": ("submit", "--all", "--model", "m", "--labels", "a," + "b" * 10_000),
    "settings of a device": ("--config", "/dev/null/x", "status"),
    "another verb": ("exec", "id"),
    "another option": ("status", "--shell=id"),
    "another format": ("results", "latest", "--format", "pickle"),
    "output into nowhere": ("results", "latest", "-o", "/proc/nowhere/x"),
    "number of words": ("worker", "--processes", "1e9"),
    "processes below nothing": ("worker", "--processes", "-1"),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Here]:
    with directory(tmp_path, monkeypatch, POOL + '[classification]\nlabels = { a = "", b = "" }\n'):
        yield Here(capsys)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_hostile_argument_is_refused_in_short_lines(name: str, here: Here) -> None:
    failed: list[int] = []
    for code in (1, 2):
        try:
            here(*ARGUMENTS[name], code=code)
        except AssertionError:
            failed.append(code)
    assert len(failed) == 1, here.err
    assert here.out == ""
    assert "Traceback" not in here.err
    assert 0 < len(here.err) < sum(map(len, ARGUMENTS[name])) + 2000  # what was asked, at most once
    assert "\x1b[31m" not in here.err
    here.err.encode()
