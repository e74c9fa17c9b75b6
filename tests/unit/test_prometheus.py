"""Metrics are in the pages, and the rules for Prometheus ask for metrics that exist and are in the runbook."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.metrics import known_metrics, known_series
from tests.support.promql import faults, names

CHECKOUT = Path(__file__).resolve().parents[2]
DEPLOY = CHECKOUT / "deploy" / "prometheus"
OPERATIONS = CHECKOUT / "docs" / "operations.md"
PROMTOOL = shutil.which("promtool")
SEVERITIES = {"warning", "critical"}


def section(title: str) -> str:
    return OPERATIONS.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def read(file: Path) -> Any:
    return pytest.importorskip("ruamel.yaml").YAML(typ="safe", pure=True).load(file)


def rules() -> list[dict[str, Any]]:
    (group,) = read(DEPLOY / "alerts.yml")["groups"]
    return list(group["rules"])


def rows() -> dict[str, set[str]]:
    """The labels of each metric in the table of metrics, by its name."""
    found = re.findall(r"^\| (`tickets_batch_.+?) \| (.*?) \|", section("Metrics"), re.M)
    return {name: set(re.findall(r"`(\w+)`", labels)) for first, labels in found for name in re.findall(r"\w+", first)}


def test_every_metric_is_documented_with_its_labels() -> None:
    assert rows() == {name: set(known.labels) - {"le"} for name, known in known_metrics().items()}


def test_every_alert_has_a_row_that_says_what_to_do() -> None:
    explained = {
        name for row in re.findall(r"^\| (`.+?) \|", section("Alerts"), re.M) for name in re.findall(r"\w+", row)
    }
    assert explained == {rule["alert"] for rule in rules()}


def test_rules_have_what_a_person_needs() -> None:
    assert len(rules()) >= 10
    for rule in rules():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"TicketsBatch[A-Z]\w+", rule["alert"])
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))
        assert rule["labels"]["severity"] in SEVERITIES
        assert set(rule["annotations"]) == {"summary", "description"}
        assert all(rule["annotations"].values())


def test_rules_ask_for_what_the_services_show() -> None:
    known = known_series()
    assert [fault for rule in rules() for fault in faults(rule["expr"], known)] == []
    assert all(names(rule["expr"]) for rule in rules())


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("tickets_batch_pool_limits > 1", "no service shows tickets_batch_pool_limits"),
        ("tickets_batch_scheduler_alerts > 1", "no service shows tickets_batch_scheduler_alerts"),
        ('tickets_batch_batch_pace{speed="at_risk"}', "tickets_batch_batch_pace has no label speed"),
        ('tickets_batch_batch_pace{pace="late"}', "tickets_batch_batch_pace never has pace=late"),
        ("tickets_batch_batch_pace{pace=at_risk}", "not a matcher: pace=at_risk"),
        ("sum by (model) (tickets_batch_batch_pace)", "nothing in it has a label model"),
        ("sum(tickets_batch_batch_pace", "() do not match"),
    ],
)
def test_an_expression_for_what_nobody_shows_would_be_found(expression: str, fault: str) -> None:
    found = faults(expression, known_series())
    assert len(found) == 1
    assert found[0].startswith(fault)


def test_every_alert_has_a_night_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    nights = read(DEPLOY / "alerts.test.yml")["tests"]
    fires, rests = (
        {
            one["alertname"]
            for night in nights
            for one in night["alert_rule_test"]
            if bool(one.get("exp_alerts")) is expected
        }
        for expected in (True, False)
    )
    assert fires == rests == {rule["alert"] for rule in rules()}


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    "words", [("check", "rules", "alerts.yml"), ("test", "rules", "alerts.test.yml")], ids=" ".join
)
def test_prometheus_s_own_checker_agrees(words: tuple[str, ...]) -> None:
    assert PROMTOOL
    done = subprocess.run([PROMTOOL, *words], cwd=DEPLOY, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


# A target that is found by name is gone when its service is stopped: nothing is left that is 0.
WHEN_GONE = {
    "tickets-batch-scheduler": ("TicketsBatchNoScheduler", "absent(tickets_batch_scheduler_leads == 1)"),
    "tickets-batch-worker": ("TicketsBatchNoWorker", "tickets_batch_scheduler_workers == 0 "),  # the scheduler counts
    "tickets-batch-gateway": ("TicketsBatchNoGateway", 'absent(up{job="tickets-batch-gateway"} == 1)'),
}


def test_every_service_that_is_gone_altogether_has_a_rule() -> None:
    expressions = {rule["alert"]: rule["expr"] for rule in rules()}
    jobs = [job["job_name"] for job in read(DEPLOY / "prometheus.yml")["scrape_configs"]]
    for job in jobs:
        alert, begins = WHEN_GONE[job]
        assert expressions[alert].startswith(begins)


def test_prometheus_asks_each_service_at_its_port() -> None:
    jobs = {job["job_name"]: job["dns_sd_configs"] for job in read(DEPLOY / "prometheus.yml")["scrape_configs"]}
    assert {job: (where["names"], where["port"]) for job, (where,) in jobs.items()} == {
        "tickets-batch-scheduler": (["scheduler"], 9102),
        "tickets-batch-worker": (["worker"], 9103),
        "tickets-batch-gateway": (["gateway"], 8090),
    }
