"""What the command's exit code says."""

COMPLETED = 0
ERROR = 1
USAGE = 2
SOME_FAILED = 3  # completed, some tickets failed
EXPIRED = 4  # the deadline passed, tickets expired
CANCELLED = 5
BLOCKED = 6
OUTPUT_CLOSED = 141  # whoever read the output went away: as shells count an end by SIGPIPE
INTERRUPTED = 130  # Ctrl-C, as shells count it: 128 + the signal's number
