"""What every verb says of itself with `--help`."""

from collections.abc import Iterator

import click

from tickets_batch.cli.frame import VERBS, command

COLUMNS = 100


def verbs() -> Iterator[tuple[str, click.Command]]:
    """Every verb by the words that call it, those of a verb that has verbs among them."""
    context = click.Context(command, info_name="tickets-batch")
    for name in VERBS:
        found = command.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            for below, one in found.commands.items():
                yield f"{name} {below}", one
        else:
            yield name, found


def options_of(verb: click.Command) -> set[str]:
    """How its options can be written."""
    named = (name for option in verb.params if isinstance(option, click.Option) for name in option.opts)
    return {*named, "-h", "--help"}


def help_of_all() -> str:
    """A section for each verb, with what it prints for `--help`."""
    return "\n\n".join(f"## {words}\n\n```text\n{_help(words, verb)}\n```" for words, verb in verbs())


def _help(words: str, verb: click.Command) -> str:
    above = click.Context(command, info_name="tickets-batch", terminal_width=COLUMNS)
    context = click.Context(verb, parent=above, info_name=words, terminal_width=COLUMNS, **verb.context_settings)
    return "\n".join(line.rstrip() for line in verb.get_help(context).splitlines())
