"""Every name that others script against is in the pages, and the pages name none that does not exist."""

import ast
import importlib
import re
from collections.abc import Iterator
from typing import get_args

import pytest

from gateway.metrics import Metrics
from jobs.hindrance import Hindrance
from jobs.outcomes import Requeued, Symptom
from jobs.retry import RetryPolicy, decide
from jobs.states import BatchState, JobState
from jobs.store.events import EventKind
from scheduler.limit import Rule
from scheduler.pace import Pace
from scheduler.plan import Origin
from scheduler.pool_reading import Condition
from scheduler.simulation.shapes import SHAPES
from tests.docs.commands import options_of, verbs
from tests.docs.named import OPTION, calls, rows, section, spans, text, written
from tests.docs.pages import CHECKOUT
from tests.support.metrics import JOB, known_metrics
from tests.support.store import attempt
from tickets_batch.cli import exit_codes
from tickets_batch.cli.frame import VERBS
from tickets_batch.cli.live.event_text import WORDS
from tickets_batch.cli.simulate_inputs import NOBODY
from tickets_batch.settings.sink import ResultField

BY_NAME = dict(verbs())
OURS = {option for verb in BY_NAME.values() for option in options_of(verb)}
# Options of other programs, which the pages name on their own.
OF_OTHERS = {
    "--max-num-seqs": "vLLM",
    "--scheduling-policy": "vLLM",
    "--enable-priority-scheduling": "SGLang",
    "--default-priority-value": "SGLang",
    "--schedule-low-priority-values-first": "SGLang",
    "--profile": "Docker Compose",
}
OTHER_PROGRAMS = ("docker ", "pip ", "celery ", "curl ", "deploy/", "vllm ")


def words(cell: str) -> set[str]:
    return set(spans(cell))


def first_cells(page: str, title: str) -> set[str]:
    return {word for row in rows(section(page, title)) for word in words(row[0])}


class TestStates:
    @pytest.mark.parametrize(("title", "states"), [("A ticket", JobState), ("A batch", BatchState)])
    def test_of_tickets_and_batches(self, title: str, states: type[JobState | BatchState]) -> None:
        assert {word for row in rows(section("docs/states.md", title)) for word in words(row[0] + row[1])} == set(
            states
        )

    def test_errors_of_a_ticket(self) -> None:
        assert first_cells("docs/states.md", "What an error means") == set(Symptom)

    def test_conditions_and_rules_of_a_pool(self) -> None:
        explained = re.findall(r"^\| `(\w+)` \|", text("docs/admission.md"), re.M)
        assert set(explained) == {*Condition, *Rule, "paused"}

    def test_paces_of_a_batch(self) -> None:
        assert first_cells("docs/night.md", "Done by morning") == set(Pace)
        assert first_cells("docs/operations.md", "When a night will be late") <= set(Pace)


class TestBlocked:
    def test_every_reason_is_in_the_runbook(self) -> None:
        assert first_cells("docs/operations.md", "When a batch is blocked") == set(self.reasons())

    @staticmethod
    def reasons() -> Iterator[str]:
        """What stands in `blocked`, as the error table writes it; of the endpoint that fails everyone, each way."""
        for hindrance in Hindrance:
            if hindrance is not Hindrance.UNREACHABLE:
                yield hindrance.of("…")
        for symptom in Symptom:
            detail = Hindrance.UNREACHABLE.of("…") if symptom is Symptom.UNREACHABLE else "…"
            seen = attempt(symptom, detail=detail)
            outcome = decide(seen, job=JOB, policy=RetryPolicy(), endpoint_failing=True, jitter=lambda: 0.0)
            if isinstance(outcome, Requeued) and outcome.blocked and symptom is not Symptom.BLOCKED:
                yield outcome.blocked


class TestEvents:
    def test_every_kind_is_explained(self) -> None:
        assert first_cells("docs/interface.md", "Events") == set(EventKind)

    def test_every_kind_is_told_in_words(self) -> None:
        assert set(WORDS) == set(EventKind)

    def test_what_is_in_their_detail(self) -> None:
        found = list(self.written_in_code())
        assert len(found) >= 5
        explained = {
            kind: words(row[2]) for row in rows(section("docs/interface.md", "Events")) for kind in words(row[0])
        }
        for kind, names in found:
            assert names <= explained[kind], kind

    @staticmethod
    def written_in_code() -> Iterator[tuple[EventKind, set[str]]]:
        """Of each event that is written with its kind and its detail in the same call."""
        for file in [*(CHECKOUT / "jobs").rglob("*.py"), *(CHECKOUT / "scheduler").rglob("*.py")]:
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in ("events.add", "events.record"):
                    kinds = [each for each in node.args if ast.unparse(each).startswith("EventKind.")]
                    names = {keyword.arg for keyword in node.keywords if keyword.arg not in (None, "pool")}
                    for kind in kinds:
                        yield EventKind[ast.unparse(kind).rpartition(".")[2]], {name for name in names if name}


class TestWebhook:
    def test_every_alert_and_its_keys(self) -> None:
        told = dict(self.told())
        assert len(told) >= 2
        shown = re.findall(
            r'`\{"event": "(\w+)", (.*?)\}`', section("docs/operations.md", "When a night will be late"), re.S
        )
        assert {event: {"event", *re.findall(r'"(\w+)"', keys)} for event, keys in shown} == told

    @staticmethod
    def told() -> Iterator[tuple[str, set[str]]]:
        """Each alert with its keys: of the objects, not those within objects, of the function that makes it."""
        for file in (CHECKOUT / "scheduler").glob("*.py"):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
                objects = [node for node in ast.walk(function) if isinstance(node, ast.Dict)]
                within = {id(below) for node in objects for below in ast.walk(node) if below is not node}
                keys = {
                    str(key.value): value
                    for node in objects
                    if id(node) not in within
                    for key, value in zip(node.keys, node.values, strict=True)
                    if isinstance(key, ast.Constant)
                }
                if "event" in keys:
                    module = importlib.import_module(f"scheduler.{file.stem}")
                    yield str(eval(ast.unparse(keys["event"]), vars(module))), set(keys)


class TestCommand:
    def test_every_verb_is_in_the_readme(self) -> None:
        named = {span.split()[0] for row in rows(section("README.md", "Commands")) for span in spans(row[0])}
        assert named == set(VERBS)

    def test_exit_codes(self) -> None:
        codes = {str(code) for name, code in vars(exit_codes).items() if name.isupper()}
        assert {row[0] for row in rows(section("docs/interface.md", "Exit codes"))} == codes

    def test_calls_that_are_shown_can_be_made(self) -> None:
        shown = calls(written())
        assert len(shown) > 20
        for call in shown:
            verb = self.verb_of(call.words)
            assert call.options <= options_of(BY_NAME[verb]), " ".join(call.words)

    def test_options_that_are_named_exist(self) -> None:
        named = set()
        for span in spans(written()):
            options = set(OPTION.findall(re.sub(r"=\S*", "", span))) if "--" in span or span.startswith("-") else set()
            if not options or span.startswith(OTHER_PROGRAMS) or span.startswith("tickets-batch"):
                continue
            verb = BY_NAME.get(span.split()[0])
            assert options <= (options_of(verb) if verb else OURS | OF_OTHERS.keys()), span
            named |= options
        assert named >= OF_OTHERS.keys()

    def test_shapes_of_chat_are_those_of_the_page(self) -> None:
        (row,) = (row for row in rows(section("docs/pools.md", "Playing a night")) if "SHAPE" in row[0])
        assert words(row[1]) == {*SHAPES, NOBODY}

    @staticmethod
    def verb_of(called: tuple[str, ...]) -> str:
        two = " ".join(called[:2])
        return two if two in BY_NAME else called[0]


def test_results() -> None:
    assert first_cells("docs/interface.md", "A result") == set(get_args(ResultField))


def test_origins_of_figures() -> None:
    assert set(Origin) <= words(section("docs/interface.md", "`plan --json`"))


def test_metrics_that_the_text_names_exist() -> None:
    named = {name for span in spans(written()) for name in re.findall(r"^tickets_batch_\w+", span)}
    assert named <= known_metrics().keys()
    kept = {name for family in Metrics().registry.collect() for name in (family.name, f"{family.name}_total")}
    assert {f"tickets_batch_gateway_{name}" for name in re.findall(r"`\.\.\._(\w+)", written())} <= kept
