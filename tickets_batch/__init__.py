"""The command, its settings and the services it can run by itself on one machine."""

from importlib.metadata import version

__version__ = version("tickets-batch")
