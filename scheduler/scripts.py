"""The verbs of the ledger as Lua, read from the package: one script a verb, each with what it shares in front."""

import re
from functools import cache
from importlib.resources import files

from scheduler import book, headroom, pull_back

_HORIZONS = len(headroom.HORIZONS_SECONDS)

# What the Lua shares with Python, and its scripts with each other, by the names that it has there.
CONSTANTS = {
    "HORIZONS_SECONDS": headroom.HORIZONS_SECONDS,
    "HORIZONS": _HORIZONS,
    "DRAIN_SECONDS": headroom.DRAIN_SECONDS,
    "RESERVE_DEVIATIONS": headroom.RESERVE_DEVIATIONS,
    "FLOOR_HOLD_MS": book.FLOOR_HOLD_MS,
    "RECENT": book.RECENT,
    "LONGEST_MS": book.LONGEST_MS,
    "SOON_MS": pull_back.SOON_MS,
    "SPARE_MS": pull_back.SPARE_MS,
    "DRAINER_MS": pull_back.DRAINER_MS,
    # Packed: the observed load (slots, tokens, until); the limit (version, until, slots, tokens, then the prefill
    # budget, eight numbers of the outlook, how many rises and the rises, then the note).
    "SEEN": "<ddd",
    "LIMIT_VERSION": 1,
    "OUTLOOK": "<" + "d" * (10 + 2 * _HORIZONS),
    "OUTLOOK_AT": 26,
}

# What stands in front of each verb: no more than it has use for, since Lua makes each function anew at every call.
_CHANGING = ("permits",)
_ASKING_BACK = ("permits", "limit", "pull_back")
PARTS: dict[str, tuple[str, ...]] = {
    "acquire_batch": ("permits", "limit"),
    "acquire_interactive": _ASKING_BACK,
    "register": _ASKING_BACK,
    "settle": _ASKING_BACK,
    "revoke": _ASKING_BACK,
    "observe": _ASKING_BACK,
    "snapshot": ("limit",),
    "first_token": _CHANGING,
    "drain": _CHANGING,
    "renew": _CHANGING,
    "release": (),
    "publish": (),
    "pause": (),
    "found": (),
    "beat": (),
    "refuse": (),
}
VERBS = tuple(PARTS)


@cache
def read(name: str) -> str:
    """The text of `lua/<name>.lua`."""
    return files("scheduler").joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")


def compose(verb: str, clock: str | None = None) -> str:
    """The whole script of a verb. `clock` is Lua that defines `now_ms()`; left out, it is the server's own clock."""
    body = "\n".join([clock or read("clock"), *map(read, ("common", *PARTS[verb], verb))])
    used = set(re.findall(r"\b[A-Z][A-Z_]+\b", body))
    constants = [f"local {name} = {_in_lua(value)}" for name, value in CONSTANTS.items() if name in used]
    return "\n".join([*constants, body])


def _in_lua(value: object) -> str:
    return f"{{ {', '.join(map(repr, value))} }}" if isinstance(value, tuple) else repr(value)
