"""Whose rows are meant: those of a day, or all."""

import click
from click.core import ParameterSource


def refuse_day_of_all(context: click.Context) -> None:
    """Raises click.UsageError where both --date and --all were given: the day would count for nothing."""
    if context.params["every_row"] and context.get_parameter_source("date") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--all takes every row, whatever its date: leave --date or --all out.", context)
