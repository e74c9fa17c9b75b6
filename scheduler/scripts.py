"""The verbs of the ledger as Lua, read from the package: one script a verb, each with the common part in front."""

from functools import cache
from importlib.resources import files


@cache
def read(name: str) -> str:
    """The text of `lua/<name>.lua`."""
    return files("scheduler").joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")


def compose(verb: str, clock: str | None = None) -> str:
    """The whole script of a verb. `clock` is Lua that defines `now_ms()`; left out, it is the server's own clock."""
    return "\n".join([clock or read("clock"), read("common"), read(verb)])
