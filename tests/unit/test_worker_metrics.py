"""What a worker process shows Prometheus of its calls, and where each process of a command does so."""

from pathlib import Path

import pytest

from jobs.job import Finish, Job
from jobs.outcomes import Attempt, Failed, Outcome, Requeued, Succeeded, Symptom, Usage
from tests.support.store import START
from tickets_batch.errors import SettingsError
from tickets_batch.local.services import worker_program
from tickets_batch.settings import Settings, load
from tickets_batch.settings import Worker as WorkerSettings
from workers.metrics import Held, Metrics

JOB = Job(7, "batch_1", "T-7", "about a parcel", "Where is it?", 0, 0, 0, False, "token", START)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics({}, lambda: Held({}, waiting=3, unwritten=2))


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"tickets_batch_worker_{name}", labels)


def finish(outcome: Outcome, symptom: Symptom | None = None, ttft_seconds: float | None = 0.2) -> Finish:
    usage = Usage(prompt_tokens=100, completion_tokens=5)
    return Finish(JOB, outcome, Attempt(START, 1.5, "gpu", "test-model", usage, ttft_seconds, symptom))


def test_an_answer_counts_once_in_everything(metrics: Metrics) -> None:
    metrics.note(finish(Succeeded("billing")))
    assert value(metrics, "calls_total", pool="gpu", outcome="answered") == 1
    assert value(metrics, "jobs_total", pool="gpu", outcome="succeeded") == 1
    assert value(metrics, "tokens_total", pool="gpu", kind="prompt") == 100
    assert value(metrics, "tokens_total", pool="gpu", kind="completion") == 5
    assert value(metrics, "call_seconds_sum", pool="gpu") == 1.5
    assert value(metrics, "ttft_seconds_sum", pool="gpu") == 0.2


@pytest.mark.parametrize(
    ("outcome", "symptom", "became"),
    [
        (Requeued(is_yield=True), Symptom.WITHDRAWN, "yielded"),
        (Requeued(spends_attempt=True), Symptom.TIMED_OUT, "requeued"),
        (Failed("invalid_output: empty"), Symptom.INVALID_OUTPUT, "failed"),
    ],
)
def test_a_call_is_counted_by_how_it_ended_and_its_ticket_by_what_became_of_it(
    metrics: Metrics, outcome: Outcome, symptom: Symptom, became: str
) -> None:
    metrics.note(finish(outcome, symptom))
    assert value(metrics, "calls_total", pool="gpu", outcome=symptom.value) == 1
    assert value(metrics, "jobs_total", pool="gpu", outcome=became) == 1
    assert value(metrics, "calls_total", pool="gpu", outcome="answered") is None


def test_a_call_without_a_first_token_has_no_ttft(metrics: Metrics) -> None:
    metrics.note(finish(Requeued(spends_attempt=True), Symptom.TIMED_OUT, ttft_seconds=None))
    assert value(metrics, "call_seconds_count", pool="gpu") == 1
    assert value(metrics, "ttft_seconds_count", pool="gpu") is None


def test_a_ticket_that_was_never_called_is_not_counted(metrics: Metrics) -> None:
    metrics.note(Finish(JOB, Requeued(keeps_place=True)))
    assert [one for family in metrics.registry.collect() for one in family.samples if "_jobs" in one.name] == []


def test_what_waits_is_read_at_every_scrape(metrics: Metrics) -> None:
    assert (value(metrics, "waiting"), value(metrics, "unwritten")) == (3, 2)


def test_each_process_of_a_command_has_a_port_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(home=tmp_path, worker=WorkerSettings(metrics_listen="[::1]:9103"))
    programs = [worker_program(number, settings, log=None) for number in (1, 2, 3)]
    listen = []
    for program in programs:
        with monkeypatch.context() as child:
            assert program.environment is not None
            for name, text in program.environment.items():
                if name.startswith("TICKETS_BATCH"):
                    child.setenv(name, text)
            listen.append(load().worker.metrics_listen)
    assert listen == ["[::1]:9103", "[::1]:9104", "[::1]:9105"]


def test_an_address_that_is_none_is_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "tickets-batch.toml"
    file.write_text("[worker]\nmetrics_listen = 9103\n", encoding="utf-8")
    with pytest.raises(SettingsError, match=r'worker\.metrics_listen = 9103: HOST:PORT, as in "127\.0\.0\.1:9103"'):
        load(file)
