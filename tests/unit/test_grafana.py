"""The dashboard is one that Grafana takes, and each of its queries asks for what the services show."""

import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.metrics import known_metrics, known_series
from tests.support.night import CHECKOUT
from tests.support.promql import faults, names

GRAFANA = CHECKOUT / "deploy" / "grafana"
TYPES = {"row", "timeseries", "stat", "state-timeline"}
COLUMNS = 24
PROMTOOL = shutil.which("promtool")
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Known without a place on the dashboard: what it shows in another way, and what concerns no night.
NOT_SHOWN = {
    "tickets_batch_pool_source_fresh", "tickets_batch_worker_tokens_total", "tickets_batch_worker_estimates_total",
    "tickets_batch_gateway_passed_total", "tickets_batch_gateway_in_flight", "tickets_batch_gateway_waiting",
}  # fmt: skip

Panel = dict[str, Any]


def dashboard() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((GRAFANA / "dashboards" / "tickets-batch.json").read_text(encoding="utf-8"))
    return read


def panels(*, rows: bool = False) -> list[Panel]:
    return [panel for panel in dashboard()["panels"] if rows or panel["type"] != "row"]


def variables() -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in dashboard()["templating"]["list"]}


def expressions() -> Iterator[str]:
    for panel in panels():
        for target in panel["targets"]:
            yield target["expr"]


def cells(panel: Panel) -> set[tuple[int, int]]:
    place = panel["gridPos"]
    across, down = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
    return set(itertools.product(across, down))


def test_every_query_asks_for_what_the_services_show() -> None:
    known = known_series()
    assert [fault for expression in expressions() for fault in faults(expression, known)] == []
    assert [expression for expression in expressions() if not names(expression)] == []


def test_every_metric_has_its_place() -> None:
    asked = {name for expression in expressions() for name in names(expression)}
    missing = {name for name, known in known_metrics().items() if asked.isdisjoint(known.series)}
    assert missing == NOT_SHOWN


def test_every_panel_says_what_it_shows() -> None:
    assert len(panels()) >= 15
    for panel in panels():
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["type"] in TYPES
        assert panel["targets"]
        assert {target["refId"] for target in panel["targets"]} == set("ABCDEFG"[: len(panel["targets"])])
        assert [one for one in (panel, *panel["targets"]) if one["datasource"] != DATASOURCE] == []


def test_legends_name_labels_that_the_queries_have() -> None:
    known = known_series()
    for panel in panels():
        for target in panel["targets"]:
            labels = {"instance"}.union(*(known[name].labels for name in names(target["expr"])))
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels


def test_panels_have_each_their_own_place_and_number() -> None:
    taken = [cell for panel in panels(rows=True) for cell in cells(panel)]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < COLUMNS
    numbers = [panel["id"] for panel in panels(rows=True)]
    assert len(numbers) == len(set(numbers))


def test_its_variables_are_asked_of_metrics_that_have_them() -> None:
    assert set(variables()) == {"datasource", "pool", "batch"}
    known = known_series()
    for name in ("pool", "batch"):
        match = re.fullmatch(r"label_values\((\w+), (\w+)\)", variables()[name]["query"]["query"])
        assert match
        assert match[2] in known[match[1]].labels
    used = {name for expression in expressions() for name in re.findall(r"\$(\w+)", expression)}
    assert used == {"pool", "batch", "__rate_interval"}


def test_grafana_finds_it_and_prometheus_where_the_compose_file_has_them() -> None:
    yaml = pytest.importorskip("ruamel.yaml").YAML(typ="safe", pure=True)
    services = yaml.load(CHECKOUT / "docker-compose.yml")["services"]
    mounts = dict(mount.split(":")[:2] for mount in services["grafana"]["volumes"])
    (provider,) = yaml.load(GRAFANA / "provisioning" / "dashboards" / "tickets-batch.yml")["providers"]
    assert mounts["./deploy/grafana/dashboards"] == provider["options"]["path"]
    assert mounts["./deploy/grafana/provisioning"] == "/etc/grafana/provisioning"
    (source,) = yaml.load(GRAFANA / "provisioning" / "datasources" / "prometheus.yml")["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    assert "prometheus" in services


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
def test_prometheus_s_own_checker_reads_every_query(tmp_path: Path) -> None:
    assert PROMTOOL
    plain = [expression.replace("$__rate_interval", "1m") for expression in expressions()]
    rules = [{"record": f"query_{number}", "expr": expression} for number, expression in enumerate(plain)]
    file = tmp_path / "queries.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")
    done = subprocess.run([PROMTOOL, "check", "rules", file], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
