"""One run of the command: calls the verb, and turns whatever happens into an exit code and at most a line a fault."""

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from types import FrameType

import click

from tickets_batch.cli import exit_codes
from tickets_batch.cli.frame import Call, command
from tickets_batch.errors import UserError
from tickets_batch.words import printable


def run(arguments: Sequence[str]) -> int:
    """Run the command with these arguments; the exit code. Faults are told on stderr, one line each."""
    _end_properly_on_signals()
    call, stdout = Call(), sys.stdout
    try:
        code = command.main(list(arguments), prog_name="tickets-batch", standalone_mode=False, obj=call)
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_gone()
    except SystemExit:
        if sys.stdout is not stdout:  # click has noticed it first, has put something around it, and would end with 1
            return _reader_gone()
        raise
    except (KeyboardInterrupt, click.Abort):
        return exit_codes.INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return exit_codes.USAGE
    except Exception as error:
        if call.debug:
            traceback.print_exc()
        _drop_output()
        lines, code = _told(error)
        for line in lines:
            print(f"tickets-batch: {printable(line)}", file=sys.stderr)
    return code if isinstance(code, int) else exit_codes.COMPLETED


def _reader_gone() -> int:
    """Whoever read our output went away: no fault, and the exit code of a program that SIGPIPE ends."""
    _drop_output()
    return exit_codes.OUTPUT_CLOSED


def _drop_output() -> None:
    """Python flushes stdout once more at its end: when it cannot be written, give it somewhere to go."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _told(error: Exception) -> tuple[list[str], int]:
    """What a person reads about an error, and the exit code."""
    if isinstance(error, UserError):
        return str(error).splitlines(), error.exit_code
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "tickets-batch"
        return [f"{error.format_message()} See {path} -h"], exit_codes.USAGE
    if isinstance(error, click.ClickException):
        return [error.format_message()], exit_codes.ERROR
    if isinstance(error, OSError) and error.strerror:
        about = f": {error.filename}" if error.filename else ""
        return [f"{error.strerror}{about}"], exit_codes.ERROR
    first = (str(error).splitlines() or [""])[0]
    what = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return [f"unexpected error: {what}; run again with --debug to see where"], exit_codes.ERROR


def _end_properly_on_signals() -> None:
    """Let `with` blocks and `finally` clauses run, so that nothing that we started stays behind."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, end)
