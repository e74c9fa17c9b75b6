"""One target under the fuzzer, in a process of its own."""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
GRACE_SECONDS = 120  # to import, to read the seeds, and to end
ONE_INPUT_SECONDS = 20
MOST_MB = 1024
_FOUND = re.compile(
    r"^Test unit written to (?P<file>\S+)|artifact_prefix='[^']*'; Test unit written to (?P<other>\S+)", re.M
)
_DONE = re.compile(r"#(?P<runs>\d+)\s+DONE\s+cov: (?P<branches>\d+) ft: (?P<features>\d+).*exec/s: (?P<rate>\d+)")


@dataclass(frozen=True, slots=True)
class Budget:
    """Whatever ends first; no number of runs is no bound."""

    seconds: int
    runs: int = -1
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Report:
    """`failure` is the file with the input that failed; `said` is what the fuzzer wrote of it."""

    name: str
    runs: int
    branches: int
    features: int
    rate: int
    failure: Path | None = None
    said: str = ""

    def __str__(self) -> str:
        if self.failure is not None:
            return f"{self.said}\n{self.name}: judge it again with: python -m tests.fuzz {self.name} {self.failure}"
        return (
            f"{self.name}: {self.runs:,} runs, {self.rate:,} a second; {self.branches:,} branches, "
            f"{self.features:,} features"
        )


def is_there() -> bool:
    """Whether the fuzzer can be imported."""
    return importlib.util.find_spec("atheris") is not None


def fuzz(name: str, budget: Budget, failures: Path, corpus: Path | None = None) -> Report:
    """Run one target for its budget. An input that fails is kept in `failures`."""
    failures.mkdir(parents=True, exist_ok=True)
    if corpus is not None:
        corpus.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run(
            [sys.executable, "-m", "tests.fuzz.child", name, str(corpus or Path(folder) / "corpus"),
             f"-runs={budget.runs}", f"-max_total_time={budget.seconds}", f"-seed={budget.seed}",
             f"-artifact_prefix={failures.absolute()}/{name}-"],
            cwd=CHECKOUT,
            env=os.environ | {"PYTHONHASHSEED": "0", "TMPDIR": folder},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=budget.seconds + GRACE_SECONDS,
            check=False,
        )  # fmt: skip
    said = ended.stdout.decode(errors="replace")
    if done := _DONE.search(said):
        return Report(name, int(done["runs"]), int(done["branches"]), int(done["features"]), int(done["rate"]))
    found = _FOUND.search(said)
    return Report(name, 0, 0, 0, 0, Path(found["file"] or found["other"]) if found else Path(os.devnull), said[-6000:])
