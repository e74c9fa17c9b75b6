"""What a [[pool.signal]] accepts, and what a person reads when it does not."""

from pathlib import Path

import pytest

from tickets_batch.errors import SettingsError
from tickets_batch.settings import (
    EngineSignal,
    LedgerSignal,
    ProbeSignal,
    PrometheusSignal,
    Signal,
    load,
    to_environment,
)

POOL = """
[[pool]]
name = "gpu"
base_url = "http://127.0.0.1:8000/v1"
model = "m"
capacity = { slots = 4 }
[[pool.signal]]
"""
PLACE = "pool.0.signal.0"


@pytest.fixture(autouse=True)
def _no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TICKETS_BATCH_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)


def loaded(signal: str) -> Signal:
    Path("tickets-batch.toml").write_text(POOL + signal)
    return load().pool[0].signal[0]


def refusal(signal: str) -> list[str]:
    with pytest.raises(SettingsError) as seen:
        loaded(signal)
    return [line.removeprefix("tickets-batch.toml: ") for line in str(seen.value).splitlines()]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('type = "ledger"', LedgerSignal(type="ledger")),
        ('type = "engine"', EngineSignal(type="engine")),
        ('type = "prometheus"', PrometheusSignal(type="prometheus")),
        ('type = "probe"', ProbeSignal(type="probe", every_seconds=10.0)),
    ],
)
def test_the_type_alone_is_enough(written: str, meant: Signal) -> None:
    assert loaded(written) == meant


def test_each_type_has_keys_of_its_own() -> None:
    assert loaded('type = "engine"\nurl = "http://127.0.0.1:8001/metrics"') == EngineSignal(
        type="engine", url="http://127.0.0.1:8001/metrics"
    )
    assert loaded('type = "probe"\nevery_seconds = 3') == ProbeSignal(type="probe", every_seconds=3.0)
    signal = loaded(
        'type = "prometheus"\nurl = "https://prometheus"\nwaiting = "sum(w)"\nauthorization = { env = "TOKEN" }'
    )
    assert isinstance(signal, PrometheusSignal)
    assert signal.queries == {"waiting": "sum(w)"}
    assert signal.authorization is not None
    assert signal.authorization.env == "TOKEN"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('type = "loki"', f"{PLACE}.type = \"loki\": input should be 'ledger', 'engine', 'prometheus' or 'probe'"),
        ('url = "http://x"', f"{PLACE}.type is missing"),
        ('type = "engine"\nurk = "http://x"', f'{PLACE}.urk is not a setting: did you mean "url"?'),
        ('type = "ledger"\nurl = "http://x"', f"{PLACE}.url is not a setting; known are type"),
        ('type = "probe"\nevery = 3', f'{PLACE}.every is not a setting: did you mean "every_seconds"?'),
        (
            'type = "probe"\nevery_seconds = 0.5',
            f"{PLACE}.every_seconds = 0.5: input should be greater than or equal to 1",
        ),
        (
            'type = "engine"\nurl = "gpu:8000"',
            f'{PLACE}.url = "gpu:8000": an http or https URL, as in "http://127.0.0.1',
        ),
        ('type = "prometheus"\nurl = "http://x"', f"{PLACE}: url and at least one of in_flight, waiting and ttft go"),
        ('type = "prometheus"\nttft = "x"', f"{PLACE}: url and at least one of in_flight, waiting and ttft go"),
        ('type = "prometheus"\nin_fligth = "x"', f'{PLACE}.in_fligth is not a setting: did you mean "in_flight"?'),
        ('type = "prometheus"\nttft = 3', f"{PLACE}.ttft = 3: a PromQL query as text"),
        ('type = "engine"\nurl = "http://u:sesame@x"', f"{PLACE}.url holds a password"),
    ],
)
def test_one_line_for_one_fault(written: str, said: str) -> None:
    [line] = refusal(written)
    assert line.startswith(said)
    assert "sesame" not in line


def test_a_secret_written_where_a_reference_belongs_is_not_repeated() -> None:
    [line] = refusal('type = "prometheus"\nurl = "http://x"\nttft = "x"\nauthorization = "Bearer sesame"')
    assert line.startswith(f"{PLACE}.authorization: only a reference to the header's value")
    assert "sesame" not in line


def test_a_child_process_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded('type = "prometheus"\nurl = "http://x"\nttft = "x"\nauthorization = { env = "TOKEN" }')
    settings = load()
    for name, value in to_environment(settings).items():
        monkeypatch.setenv(name, value)
    assert load().pool == settings.pool
