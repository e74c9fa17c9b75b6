"""The compose file and the Dockerfile say what the compose specification allows, and name only what the project has."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.night import CHECKOUT
from tickets_batch.cli import exit_codes
from tickets_batch.settings import Secret, Settings, load

yaml = pytest.importorskip("ruamel.yaml")

COMPOSE = CHECKOUT / "docker-compose.yml"
DOCKERFILE = CHECKOUT / "Dockerfile"
PRODUCT = "tickets-batch:0.1.0"
ASKED_FOR = {
    "postgres", "valkey", "migrate", "scheduler", "worker", "gateway", "flower", "prometheus", "grafana", "vllm",
}  # fmt: skip
THE_USER_S = {"./tickets-batch.toml", "./exports"}  # what the comment at its top asks for
ONCE = {"migrate", "cli", "vllm-cache"}  # these end by themselves
PORTS = {"gateway": 8090, "flower": 5555, "prometheus": 9090, "grafana": 3000}
POOL = """
[[pool]]
name = "gpu"
base_url = "http://vllm:8000/v1"
model = "qwen2.5-7b-instruct"
api_key = { file = "/run/secrets/llm_api_key" }
capacity = { slots = 20, tokens = 60000 }
"""

Service = dict[str, Any]


def compose() -> dict[str, Any]:
    read: dict[str, Any] = yaml.YAML(typ="safe", pure=True).load(COMPOSE)
    return read


def services() -> dict[str, Service]:
    found: dict[str, Service] = compose()["services"]
    return found


def which(matches: Callable[[str, Service], bool]) -> set[str]:
    return {name for name, service in services().items() if matches(name, service)}


def environment(name: str) -> dict[str, str]:
    found: dict[str, str] = services()[name].get("environment", {})
    return found


def copied_paths() -> set[str]:
    """What the Dockerfile takes from the checkout."""
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE.read_text(encoding="utf-8"), re.M)
    return {path for line in copied for path in line.split()}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings as a service of the product has them, with a pool that a user wrote."""
    for name in os.environ:
        if name.startswith("TICKETS_BATCH"):
            monkeypatch.delenv(name)
    for name, value in environment("scheduler").items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "tickets-batch.toml"
    file.write_text(POOL, encoding="utf-8")
    return load(file)


def test_the_compose_specification_allows_it() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_everything_that_a_night_needs_is_in_it() -> None:
    assert set(services()) >= ASKED_FOR
    assert services()["worker"]["deploy"]["replicas"] == 2
    assert which(lambda _, service: "profiles" in service) == {"cli", "vllm", "vllm-cache"}


def test_nothing_in_it_may_do_more_than_it_needs() -> None:
    assert which(lambda _, service: service.get("read_only") is not True) == set()
    assert which(lambda _, service: service.get("cap_drop") != ["ALL"]) == set()
    assert which(lambda _, service: "no-new-privileges:true" not in service["security_opt"]) == set()
    assert which(lambda _, service: service["user"].split(":")[0] == "0") == {"vllm-cache"}
    assert which(lambda _, service: bool(service.get("privileged"))) == set()


def test_the_product_writes_where_it_may() -> None:
    (written,) = re.findall(
        r"HOME=(\S+) MPLCONFIGDIR=(\S+) TICKETS_BATCH__HOME=(\S+)", DOCKERFILE.read_text(encoding="utf-8")
    )
    assert [path for path in written if not f"{path}/".startswith("/tmp/")] == []
    for service in services().values():
        assert service["image"] != PRODUCT or service["tmpfs"][0].startswith("/tmp:")


def test_everything_has_its_bounds() -> None:
    for service in services().values():
        assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory"}
        assert service["logging"]["options"]["max-size"]


def test_what_stays_is_watched_and_started_again() -> None:
    stays = set(services()) - ONCE
    assert which(lambda _, service: "healthcheck" in service) == stays
    assert which(lambda _, service: service["restart"] == "unless-stopped") == stays
    assert which(lambda _, service: service["restart"] == "no") == ONCE


def test_who_waits_for_another_s_health_waits_for_one_that_has_a_check() -> None:
    for service in services().values():
        needs = service.get("depends_on", {})
        assert set(needs) <= set(services())
        for other, how in needs.items() if isinstance(needs, dict) else ():
            expected = "service_completed_successfully" if other in ONCE else "service_healthy"
            assert how == {"condition": expected}


def test_images_are_pinned_to_a_release() -> None:
    for service in services().values():
        name, _, tag = service["image"].partition(":")
        assert re.fullmatch(r"v?\d+\.\d+(\.\d+)?(-\w+)?", tag), service["image"]
        assert (service["image"] == PRODUCT) == ("build" in service) == (name == "tickets-batch")


def test_it_is_the_version_that_the_project_has() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"tickets-batch:{project['version']}" == PRODUCT


@pytest.mark.parametrize("name", sorted(which(lambda _, one: one["image"] == PRODUCT and "entrypoint" not in one)))
def test_every_command_is_one_of_the_project_s(name: str) -> None:
    command = services()[name]["command"]
    done = subprocess.run(
        [sys.executable, "-m", "tickets_batch", *command, "-h"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == exit_codes.COMPLETED, done.stderr
    assert done.stdout.startswith("Usage: ")


def test_flower_s_application_is_in_the_project() -> None:
    program, application, module, verb = services()["flower"]["entrypoint"]
    assert (program, application, verb) == ("celery", "-A", "flower")
    assert find_spec(module)


def test_the_settings_that_it_gives_exist(settings: Settings) -> None:
    assert settings.database_url == Secret(file=Path("/run/secrets/database_url"))
    assert settings.redis_url == Secret(file=Path("/run/secrets/redis_url"))
    assert environment("flower").items() >= environment("scheduler").items()
    targets = {mount.split(":")[1] for mount in services()["scheduler"]["volumes"]}
    assert environment("scheduler")["TICKETS_BATCH_CONFIG"] in targets


def test_services_are_asked_where_they_listen(settings: Settings) -> None:
    listens = {
        "scheduler": settings.scheduler.metrics_listen,
        "worker": settings.worker.metrics_listen,
        "gateway": settings.gateway.listen,
    }
    for name, listen in listens.items():
        host, _, port = (listen or "").partition(":")
        assert host == "0.0.0.0"
        assert f"http://127.0.0.1:{port}/" in " ".join(services()[name]["healthcheck"]["test"])
    scraped = yaml.YAML(typ="safe", pure=True).load(CHECKOUT / "deploy" / "prometheus" / "prometheus.yml")
    where = {one["names"][0]: one["port"] for job in scraped["scrape_configs"] for one in job["dns_sd_configs"]}
    assert where == {name: int((listen or "").rpartition(":")[2]) for name, listen in listens.items()}


def test_only_this_machine_reaches_its_ports() -> None:
    published = {name: service["ports"] for name, service in services().items() if "ports" in service}
    assert published == {name: [f"127.0.0.1:{port}:{port}"] for name, port in PORTS.items()}


def test_every_path_is_in_the_project_or_the_user_s() -> None:
    mounts = [mount for service in services().values() for mount in service.get("volumes", ())]
    paths = {mount.split(":")[0] for mount in mounts if mount.startswith(".")}
    assert {path for path in paths if not (CHECKOUT / path).exists()} <= THE_USER_S
    assert {mount for mount in mounts if mount.startswith(".") and not mount.endswith(":ro")} == set()
    kept = {mount.split(":")[0] for mount in mounts if not mount.startswith(".")}
    assert kept == set(compose()["volumes"])


def test_secrets_come_from_files_that_the_script_makes(tmp_path: Path) -> None:
    subprocess.run([CHECKOUT / "deploy" / "make-secrets", tmp_path / "secrets"], check=True, capture_output=True)
    declared = {name: one["file"] for name, one in compose()["secrets"].items()}
    assert declared == {name: f"./secrets/{name}" for name in declared}
    assert set(declared) == {file.name for file in (tmp_path / "secrets").iterdir()}
    used = {name for service in services().values() for name in service.get("secrets", ())}
    assert used == set(declared)
    named = set(re.findall(r"/run/secrets/(\w+)", COMPOSE.read_text(encoding="utf-8") + POOL))
    assert named == set(declared)


def test_no_variable_holds_a_secret() -> None:
    for name in services():
        for variable, value in environment(name).items():
            is_secret = re.search(r"PASSWORD|KEY|TOKEN|URL", variable) is not None
            assert not is_secret or "/run/secrets/" in value, variable


def test_the_image_is_built_of_pinned_parts_and_runs_as_nobody_special() -> None:
    text = DOCKERFILE.read_text(encoding="utf-8")
    python = re.search(r"^ARG PYTHON=(\S+)$", text, re.M)
    assert python
    assert re.fullmatch(r"3\.\d+\.\d+-slim-\w+", python[1])
    assert len(re.findall(r"^FROM python:\$\{PYTHON\}", text, re.M)) == len(re.findall(r"^FROM ", text, re.M)) == 2
    assert re.findall(r"^USER (.+)$", text, re.M) == ["10001:10001"] == [services()["scheduler"]["user"]]
    assert 'ENTRYPOINT ["tickets-batch"]' in text
    assert "--require-hashes" in text


def test_what_the_image_is_built_of_is_in_the_project_and_reaches_the_build() -> None:
    paths = copied_paths()
    assert {path for path in paths if not (CHECKOUT / path).exists()} == set()
    ignored = (CHECKOUT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in ignored
    assert {line[1:] for line in ignored if line.startswith("!")} == paths
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) <= paths


def test_what_reaches_the_build_is_enough_for_the_wheel(tmp_path: Path) -> None:
    for path in copied_paths() - {"requirements/server.txt"}:
        source, target = CHECKOUT / path, tmp_path / path
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "scheduler/lua/acquire_batch.lua" in names
    assert "migrations/script.py.mako" in names
