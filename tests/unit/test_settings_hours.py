"""`shared_hours` of a pool: what is accepted, and what a person reads when it is not."""

import json

import pytest

from tickets_batch.errors import SettingsError
from tickets_batch.settings import load, to_environment

POOL = {
    "name": "gpu",
    "base_url": "http://127.0.0.1:9/v1",
    "model": "m",
    "capacity": {"slots": 4, "tokens": 8000},
}


def given(monkeypatch: pytest.MonkeyPatch, hours: object) -> None:
    monkeypatch.setenv("TICKETS_BATCH_CONFIG", "")
    monkeypatch.setenv("TICKETS_BATCH__POOL", json.dumps([{**POOL, "shared_hours": hours}]))


@pytest.mark.parametrize("hours", [["22:00-05:00"], ["00:00-24:00"], ["12:00-13:30", "22:00-00:00"]])
def test_ranges_reach_a_child_process_as_they_are(monkeypatch: pytest.MonkeyPatch, hours: list[str]) -> None:
    given(monkeypatch, hours)
    settings = load()
    assert settings.pool[0].shared_hours == tuple(hours)
    for name, value in to_environment(settings).items():
        monkeypatch.setenv(name, value)
    assert load().pool == settings.pool


def test_without_them_the_shared_part_is_always_open(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, None)
    assert load().pool[0].shared_hours is None


NO_RANGE = 'is no range of hours: write HH:MM-HH:MM, as in "22:00-05:00"'


@pytest.mark.parametrize(
    ("hours", "expected"),
    [
        (["22-05"], f'"22-05" {NO_RANGE}'),
        (["22:00-05:00", "24:00-05:00"], f'"24:00-05:00" {NO_RANGE}'),
        (["22:00-24:01"], f'"22:00-24:01" {NO_RANGE}'),
        (["22:00-05:00\n"], NO_RANGE),
        (["22:00 - 05:00"], f'"22:00 - 05:00" {NO_RANGE}'),
        (["٢٢:00-05:00"], NO_RANGE),
        (["08:00-08:00"], '"08:00-08:00" ends when it begins: write "00:00-24:00" for the whole day'),
        ([], "it is empty: write at least one range"),
        ("22:00-05:00", 'a list of ranges in local time, as in ["22:00-05:00"]'),
        ([22], "write text in quotes"),
    ],
)
def test_what_is_no_range_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch, hours: object, expected: str) -> None:
    given(monkeypatch, hours)
    with pytest.raises(SettingsError) as refused:
        load()
    (line,) = str(refused.value).splitlines()
    assert expected in line
    assert "pool.0.shared_hours" in line
