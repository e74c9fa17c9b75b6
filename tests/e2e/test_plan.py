"""`plan --measure` on a server of its own: the lines that it proposes are pasted, and the plan then rests on them."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.curve import Curve
from scheduler.pools import capacity_of
from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.process import EngineProcess
from tests.support.night import Night
from tickets_batch.settings import load

COLUMNS = 80
CAPACITY, PROTECTED = (re.compile(rf"^{key}\b.*= .*$", re.M) for key in ("capacity", "protected"))

pytestmark = [pytest.mark.rare, pytest.mark.timeout(300)]


@pytest.fixture
def engine() -> Iterator[EngineProcess]:
    with EngineProcess(EngineProfile(slots=4, step_base_seconds=0.01)) as engine:
        yield engine


@pytest.fixture
def night(tmp_path: Path, engine: EngineProcess) -> Iterator[Night]:
    night = Night(tmp_path)
    night.configure(engine.base_url, slots=3, chat=1)
    night.tickets(f"Parcel {number} has not come. " * (1 + number % 9) for number in range(200))
    yield night
    night.close()


def paste(settings: str, printed: str) -> str:
    """The settings with the pool's lines replaced by those that were printed."""
    for line in (CAPACITY, PROTECTED):
        proposed = "\n".join(found[0] for found in line.finditer(printed))
        assert proposed
        settings, count = line.subn(proposed, settings)
        assert count == 1
    return settings


def test_a_measured_pool_is_planned_by_its_numbers(
    night: Night, engine: EngineProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TICKETS_BATCH_CONFIG", raising=False)
    measured = night.run("plan", "--measure", "gpu", "--all", code=0, timeout_seconds=240)
    assert max(map(len, measured.out.splitlines())) <= COLUMNS
    assert "\x1b" not in measured.out
    assert [line.split(":")[0] for line in measured.talk][:4] == [
        f"measuring pool gpu at {engine.base_url} with 200 tickets of tickets.csv (CSV)".split(":")[0],
        "1 in flight",
        "2 in flight",
        "3 in flight",
    ]
    assert re.search(r"#+ [\d.]+ knee", measured.out)
    file = night.folder / "tickets-batch.toml"
    file.write_text(paste(file.read_text(encoding="utf-8"), measured.out), encoding="utf-8")
    capacity = capacity_of(load(file).pool[0])

    found = night.json("plan", "--tickets", "1000", "--deadline", "none")["pools"][0]
    curve = Curve.from_json(found["curve"])
    assert found["basis"]["origin"] == "measured"
    assert capacity.total.slots in {step.in_flight for step in curve.steps}
    slots = capacity.most_batch.slots
    assert found["tickets_per_hour_at_full"]["value"] == pytest.approx(3600 * curve.tickets_per_second(slots))
    assert night.batch() is None  # no batch was made of it


def test_its_object_has_all_of_it(night: Night) -> None:
    found = night.json("plan", "--measure", "gpu", "--all", timeout_seconds=240)
    assert list(found) == ["pool", "model", "measured_at", "curve", "knee", "most_within_ttft_target", "proposal"]
    assert list(found["proposal"]) == ["capacity", "protected_interactive", "protected_batch", "reasons", "toml"]
    assert Curve.from_json(found["curve"]).knee.in_flight == found["knee"]["in_flight"]
    assert f"slots = {found['proposal']['capacity']['slots']}" in found["proposal"]["toml"]
