"""The process in which one target is fuzzed: `python -m tests.fuzz.child TARGET CORPUS -flag=value ...`."""

import sys
import tempfile
from pathlib import Path

import atheris

from tests.fuzz.run import MOST_MB, ONE_INPUT_SECONDS
from tests.fuzz.target import target_named

PACKAGES = ["gateway", "jobs", "scheduler", "tickets_batch", "workers"]
LIBRARIES = {"broker_message": ["celery", "kombu"]}  # where most branches are a library's


def main(name: str, corpus: Path, flags: list[str]) -> None:
    with atheris.instrument_imports(include=PACKAGES + LIBRARIES.get(name, [])):
        target = target_named(name)
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    folder = Path(tempfile.mkdtemp())
    words = folder / "words"
    words.write_text("".join(f'"{quoted(word)}"\n' for word in target.words))
    atheris.Setup(
        [name, f"-dict={words}", f"-max_len={target.most_bytes}", f"-timeout={ONE_INPUT_SECONDS}",
         f"-rss_limit_mb={MOST_MB}", *flags, str(corpus)],
        lambda data: target.judge(data, folder),
    )  # fmt: skip
    atheris.Fuzz()


def quoted(word: str) -> str:
    """As a dictionary of libFuzzer has it."""
    return "".join(f"\\x{byte:02x}" for byte in word.encode())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
