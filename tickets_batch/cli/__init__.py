"""The command `tickets-batch`: one file per group of verbs, each loaded only when it is called."""

import sys


def main() -> None:
    """The command's entry point."""
    from tickets_batch.cli.run import run

    sys.exit(run(sys.argv[1:]))
