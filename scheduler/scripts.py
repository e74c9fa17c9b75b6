"""The verbs of the ledger as Lua, read from the package: one script a verb, each with what it shares in front."""

from functools import cache
from importlib.resources import files

from scheduler import book, headroom, pull_back

# The numbers of the rules, for the Lua by the names that Python has for them.
NUMBERS = {
    "DRAIN_SECONDS": headroom.DRAIN_SECONDS,
    "RESERVE_DEVIATIONS": headroom.RESERVE_DEVIATIONS,
    "FLOOR_HOLD_MS": book.FLOOR_HOLD_MS,
    "RECENT": book.RECENT,
    "SOON_MS": pull_back.SOON_MS,
    "SPARE_MS": pull_back.SPARE_MS,
    "DRAINER_MS": pull_back.DRAINER_MS,
}


# The verbs that have no use for it are spared its functions: Lua makes each anew at every call.
PULLING_BACK = frozenset({"acquire", "register", "settle", "revoke", "observe", "snapshot"})


@cache
def read(name: str) -> str:
    """The text of `lua/<name>.lua`."""
    return files("scheduler").joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")


def compose(verb: str, clock: str | None = None) -> str:
    """The whole script of a verb. `clock` is Lua that defines `now_ms()`; left out, it is the server's own clock."""
    horizons = ", ".join(map(repr, headroom.HORIZONS_SECONDS))
    numbers = "\n".join(
        [
            f"local HORIZONS_SECONDS = {{ {horizons} }}",
            *(f"local {name} = {value!r}" for name, value in NUMBERS.items()),
        ]
    )
    parts = [numbers, clock or read("clock"), read("common")]
    if verb in PULLING_BACK:
        parts.append(read("pull_back"))
    return "\n".join([*parts, read(verb)])
