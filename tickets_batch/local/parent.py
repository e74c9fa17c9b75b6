"""Ties a process to the one that started it, so that it does not outlive it.

As a script, `python -I -S parent.py PARENT_PID PROGRAM ARGUMENT...` ties itself and then becomes the program: a server
that knows nothing of us dies with its supervisor too. It imports nothing but the standard library.
"""

import ctypes
import os
import signal
import sys
import threading
import time

PARENT_VARIABLE = "TICKETS_BATCH_PARENT_PID"
POLL_SECONDS = 0.5
PR_SET_PDEATHSIG = 1  # linux/prctl.h


def tied(argv: tuple[str, ...]) -> list[str]:
    """The command line that runs `argv` tied to this process.

    On Linux the kernel kills the program when the *thread* that started it ends: start it from one that lives on.
    """
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *argv]


def die_with_parent() -> None:
    """Watch the parent that the environment names, if any, and end this process at once when it is gone.

    Where the kernel can do that itself this comes second; elsewhere it is the only tie.
    """
    named = os.environ.get(PARENT_VARIABLE)
    if named:
        threading.Thread(target=_watch, args=(int(named),), name="parent-watch", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    os._exit(1)


def _become(parent: int, argv: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The parent may have died before the line above took hold: then no signal will come.
    if os.getppid() != parent:
        sys.exit(1)
    os.execvp(argv[0], argv)  # noqa: S606 - a shell in between would be the one that dies


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
