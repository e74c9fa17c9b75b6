"""A settings file of any bytes: refused in lines that tell no secret, or settings that a child process has alike."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from tests.fuzz.claims import lines_of
from tests.fuzz.target import Target
from tickets_batch.errors import SettingsError
from tickets_batch.settings import load, to_environment
from tickets_batch.settings.load import CONFIG_VARIABLE
from tickets_batch.settings.model import PREFIX

KEY = "sk-live-0123456789"


def judge(data: bytes, folder: Path) -> None:
    path = folder / "tickets-batch.toml"
    path.write_bytes(data)
    with environment({CONFIG_VARIABLE: str(path)}):
        try:
            settings = load()
        except SettingsError as refused:
            check_refusal(refused, len(data))
            return
    settings = settings.model_copy(update={"home": settings.home.absolute()})
    variables = to_environment(settings)
    with environment(variables):
        assert load() == settings, "a child process would read other settings"


def check_refusal(refused: SettingsError, size_bytes: int) -> None:
    assert all(len(line) < 2 * size_bytes + 2000 for line in lines_of(refused))
    assert f"{KEY}@" not in str(refused), "a password in a URL, or in what should be one"


@contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """These, and no other that the settings are read from."""
    others = {name: value for name, value in os.environ.items() if not name.startswith((PREFIX, "OPENAI_"))}
    with patch.dict(os.environ, others | variables, clear=True):
        yield


POOL = b'[[pool]]\nname = "gpu"\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "m"\ncapacity = { slots = 4 }\n'
TARGET = Target(
    judge,
    seeds=(
        POOL,
        POOL + b'[[pool.signal]]\ntype = "engine"\nurl = "http://h/metrics"\n[[pool.signal]]\ntype = "probe"\n',
        POOL + b'api_key = { env = "A" }\nprotected = { interactive = { slots = 2 }, batch = { slots = 1 } }\n',
        POOL + b'hours = ["22:00-06:00"]\nttft_target_seconds = 0.5\nengine = "vllm"\n',
        b'[source]\npath = "t-{date}.csv"\ncolumns = { id = "a.b" }\nurgent = { column = "p", values = ["high"] }\n',
        b'[source]\nurl = "sqlite:///x.db"\nquery = "SELECT 1"\n',
        b'[classification]\nlabels = { a = "", b = "" }\nexamples = [{ text = "x", label = "a" }]\n',
        b'timezone = "Europe/Berlin"\ndeadline = "07:00"\nhome = "~/x"\ndatabase_url = "sqlite:///x.db"\n',
        b'[gateway]\nlisten = "127.0.0.1:0"\nkeys = { file = "/k" }\n[worker]\nprocesses = 2\nat_once = 9\n',
        b'[sink]\nurl = { env = "S" }\ntable = "a.b"\ncolumns = { custom_id = "id", label = "l" }\n',
        b'database_url = "postgresql://u:%s@h/d"\n' % KEY.encode(),
        b'[alert]\nwebhook = "https://h/%s"\n' % KEY.encode(),
        b"a." * 100 + b"b = 1\n",
        b"x = " + b"[" * 500,
    ),
    words=("[[pool]]\n", "[[pool.signal]]\n", "[source]\n", "[classification]\n", "[gateway]\n", "[sink]\n", "= ", '"',
           "{ env = ", "\\u0000", "nan", "inf", "1e300", "99999999999999999999", "1979-05-27", "true", '"none"', "\n",
           "lease_seconds = ", "ttft_target_seconds = ", "capacity = ", "slots = ", "tokens = ", "labels = "),
    most_bytes=512,
)  # fmt: skip
