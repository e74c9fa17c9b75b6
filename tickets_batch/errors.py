"""Errors that a person reads.

UserError            one line: what happened and what to do; exit code 1
├── UsageError       a value on the command line cannot be used; exit code 2
└── SettingsError    the settings cannot be used; exit code 2
"""


class UserError(Exception):
    """Something the person can mend; the message is one line that says what happened and what to do."""

    exit_code = 1


class UsageError(UserError):
    """A value on the command line cannot be used, however often it is tried; the message says what is accepted."""

    exit_code = 2


class SettingsError(UserError):
    """The settings cannot be used; the message names each key, its value's problem and what is accepted."""

    exit_code = 2
