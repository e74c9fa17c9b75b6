"""Each parser under the fuzzer for a fixed short while; where the fuzzer is not installed, its seeds alone."""

from pathlib import Path

import pytest

from tests.fuzz.run import Budget, fuzz, is_there
from tests.fuzz.target import NAMES, target_named

BUDGET = Budget(seconds=2, runs=20_000)  # whichever ends first: well under a minute and a half for all of them


@pytest.mark.parametrize("name", NAMES)
def test_what_must_hold_does_of_every_seed(name: str, tmp_path: Path) -> None:
    target = target_named(name)
    for seed in (b"", *target.seeds):
        target.judge(seed, tmp_path)


@pytest.mark.long
@pytest.mark.skipif(not is_there(), reason="atheris is not installed: it has wheels for some Pythons on Linux only")
@pytest.mark.parametrize("name", NAMES)
def test_what_must_hold_does_of_what_a_fuzzer_finds(name: str, tmp_path: Path) -> None:
    report = fuzz(name, BUDGET, tmp_path / "failures")
    print(report)
    assert report.failure is None, str(report)
    assert report.runs > len(target_named(name).seeds)
