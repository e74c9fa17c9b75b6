"""`python -m tests.fuzz TARGET FILE` judges one input again, `--seconds N` fuzzes a target for so long, or all of them.

An input that fails is kept in a folder, and the line that judges it again is printed.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz.run import Budget, fuzz, is_there
from tests.fuzz.target import NAMES, target_named


def main() -> int:
    """The exit code: 1 where an input fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", nargs="?", choices=NAMES)
    parser.add_argument("file", nargs="?", type=Path, help="judge this input, without a fuzzer")
    parser.add_argument("--seconds", type=int, default=60, help="how long to fuzz each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--corpus", type=Path, help="keep what was found worth reading in a folder here, and begin there"
    )
    parser.add_argument("--failures", type=Path, default=Path(tempfile.gettempdir()) / "tickets-batch-fuzz")
    options = parser.parse_args()
    if options.file is not None:
        with tempfile.TemporaryDirectory() as folder:
            target_named(options.target).judge(options.file.read_bytes(), Path(folder))
        return 0
    if not is_there():
        print("atheris is not installed here: it has wheels for some versions of Python on Linux only")
        return 1
    failed = False
    for name in [options.target] if options.target else NAMES:
        corpus = options.corpus / name if options.corpus else None
        report = fuzz(name, Budget(seconds=options.seconds, seed=options.seed), options.failures, corpus)
        print(report, flush=True)
        failed |= report.failure is not None
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
