"""The command with less patience than people have."""

import sys

# The command itself, but a blocked batch is left after a second and not after two minutes.
IMPATIENT = (
    *(sys.executable, "-c"),
    "from tickets_batch.cli import main, wait; wait.BLOCKED_SECONDS = 1.0; main()",
)
