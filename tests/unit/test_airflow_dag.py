"""The DAG as far as it can be judged without Airflow; `make airflow` runs it in a real one."""

import ast
import importlib

import pytest

from tests.support.night import CHECKOUT
from tickets_batch.cli import exit_codes
from tickets_batch.cli.frame import VERBS

FILE = CHECKOUT / "deploy" / "airflow" / "tickets_batch_night.py"
TREE = ast.parse(FILE.read_text(encoding="utf-8"))
CALLS = [
    [str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)]
    for node in ast.walk(TREE)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "call"
]


def test_it_calls_the_command() -> None:
    assert sorted(words[0] for words in CALLS) == ["results", "results", "status", "submit"]


@pytest.mark.parametrize("words", CALLS, ids=" ".join)
def test_every_verb_and_option_that_it_uses_exists(words: list[str]) -> None:
    verb, *options = words
    command = getattr(importlib.import_module(f"tickets_batch.cli.{VERBS[verb][0]}"), f"{verb}_command")
    known = {name for parameter in command.params for name in parameter.opts}
    assert set(options) <= known


def test_every_exit_code_has_a_verdict() -> None:
    (verdicts,) = (
        node.value
        for node in TREE.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Dict)
        and ast.unparse(node.targets[0]) == "VERDICTS"
    )
    said = {key.value for key in verdicts.keys if isinstance(key, ast.Constant)}
    codes = {value for name, value in vars(exit_codes).items() if name.isupper()}
    assert said == codes - {exit_codes.INTERRUPTED, exit_codes.OUTPUT_CLOSED}
