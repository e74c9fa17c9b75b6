"""What all verbs share: their names, the options every one of them takes, and how they are loaded.

A verb's module is imported when the verb is called, so that help and readers start without what only services need.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tickets_batch.settings import Settings, load

# Verb, the module that holds it as `<verb>_command`, and what `tickets-batch -h` says about it.
VERBS: dict[str, tuple[str, str]] = {
    "submit": ("submit", "Create or top up the batch of a day's tickets."),
    "status": ("status", "Show all batches, or one."),
    "results": ("status", "Write one row per ticket, as CSV or JSON lines."),
    "cancel": ("control", "End a batch; what is in flight is withdrawn."),
    "retry": ("control", "Put a batch's failed and expired tickets back to work."),
    "pause": ("control", "Let a batch rest."),
    "resume": ("control", "Let a paused batch go on."),
    "scheduler": ("services", "Run the scheduler."),
    "worker": ("services", "Run worker processes."),
    "gateway": ("services", "Run the chat's door: an OpenAI-compatible address that admits chat first."),
    "up": ("services", "Run everything on this machine, supervised."),
    "report": ("report", "Draw the night of a batch, and say what it cost the chat."),
    "plan": ("plan", "Say in numbers what each pool can carry, and how long a night takes."),
    "simulate": ("simulate", "Play a whole night in virtual time: when it is done, and what the chat feels."),
    "demo": ("demo", "Classify sixty tickets on a small real model on this machine."),
    "doctor": ("doctor", "Try every connection and setting, and every model with a few small requests, one at a time."),
    "db": ("db", "Look after the database."),
    "purge": ("purge", "Remove the text of tickets whose batch ended long ago."),
}
HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@dataclass
class Call:
    """What was asked of the command as a whole."""

    debug: bool = False
    config: Path | None = None

    def settings(self, *, model: str | None = None, labels: str | None = None) -> Settings:
        """The settings this call is to use. Raises SettingsError."""
        return load(self.config, model=model, labels=labels)


def _debug(context: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        context.ensure_object(Call).debug = True


def _config(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is not None:
        context.ensure_object(Call).config = path


def _shared_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--config"],
            type=click.Path(path_type=Path),
            metavar="FILE",
            expose_value=False,
            callback=_config,
            help="The settings, instead of ./tickets-batch.toml.",
        ),
        click.Option(
            ["--debug"],
            is_flag=True,
            expose_value=False,
            callback=_debug,
            is_eager=True,
            help="Show where an error comes from.",
        ),
    ]


class Verb(click.Command):
    """A verb: it takes the shared options, before its own name or after it."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        named["context_settings"] = HELP
        super().__init__(*arguments, **named)
        self.params.extend(_shared_options())


class VerbGroup(click.Group):
    """A verb that has verbs."""

    command_class = Verb


class Command(click.Group):
    """The command itself: knows its verbs by name, and loads the one that is called."""

    def list_commands(self, context: click.Context) -> list[str]:
        """The verbs in the order in which people meet them."""
        return list(VERBS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The verb, loaded. Raises NoSuchCommand, which names the nearest, when there is none."""
        if name not in VERBS:
            if name.startswith("-"):
                return None
            raise click.NoSuchCommand(name, possibilities=VERBS, ctx=context)
        module = importlib.import_module(f"tickets_batch.cli.{VERBS[name][0]}")
        found: click.Command = getattr(module, f"{name}_command")
        return found

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of verbs, without loading any."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, words) for name, (_, words) in VERBS.items()])


batch_argument = click.argument("batch")
BATCH_WORDS = "BATCH is an id, the beginning of exactly one id, or latest."


def verb(**named: Any) -> Callable[[Callable[..., Any]], Verb]:
    """Makes a verb of a function that returns its exit code, or None for success."""
    return click.command(cls=Verb, **named)


command = Command(
    name="tickets-batch",
    help="Run a night's LLM batch on a model that people are chatting with, without them noticing.",
    params=_shared_options(),
    context_settings=HELP,
    epilog="Settings are in tickets-batch.toml. Data goes to stdout, talk to stderr.",
)
click.version_option(package_name="tickets-batch", message="%(prog)s %(version)s")(command)
