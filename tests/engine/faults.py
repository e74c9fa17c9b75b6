"""Scripted faults: which request meets which.

A fault is chosen by the request's number, by text in the ticket, by a rate, or by a marker that the ticket carries
itself: `[[fault:429 retry_after=1 times=2]]` fails twice and then works. `times` always counts per ticket text, and
a rate is drawn from a hash of seed, ticket and try: the same run meets the same faults in whatever order it calls.
"""

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

from tests.engine.answer import ticket_hash

REFUSALS = frozenset(
    {"429", "503", "500", "401", "403", "404", "400", "context_too_long", "content_filter", "schema_refused"}
)
"""Answered with an HTTP error before the engine sees the request."""

WRONG_ANSWERS = frozenset(
    {
        "cut_off",
        "prose",
        "fenced",
        "list",
        "wrong_label",
        "empty",
        "reasoning_only",
        "white_space",
        "content_filter_answer",
        "ignore_response_format",
    }
)
"""The engine works as usual and answers something else; `white_space` goes on until the token cap."""

TRANSPORT = frozenset({"drop_before_headers", "drop_mid_stream"})
TIMING = frozenset({"slow_first_token", "stall", "late_abort"})
KINDS = REFUSALS | WRONG_ANSWERS | TRANSPORT | TIMING | {"missing_usage"}

_MARKER = re.compile(r"\[\[fault:([^\]]+)\]\]")
_MARKER_KEYS = {
    "retry_after": "retry_after_seconds",
    "form": "retry_after_form",
    "after": "after_tokens",
    "seconds": "seconds",
    "shape": "shape",
    "label": "label",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong; which of the details count depends on the kind.

    `seconds` is how long a slow first token, a stall or a late abort lasts (None: 1 s for a first token, 5 s for an
    abort, for ever for a stall). `after_tokens` is where a stall or a dropped connection sets in.
    """

    kind: str
    retry_after_seconds: float | None = None
    retry_after_form: Literal["seconds", "date"] = "seconds"
    shape: Literal["vllm", "openai"] = "vllm"
    seconds: float | None = None
    after_tokens: int = 1
    label: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown fault {self.kind!r}; known: {', '.join(sorted(KINDS))}")
        if self.retry_after_form not in ("seconds", "date") or self.shape not in ("vllm", "openai"):
            raise ValueError("retry_after_form is seconds or date, shape is vllm or openai")

    @property
    def stall_seconds(self) -> float:
        default = 1.0 if self.kind == "slow_first_token" else math.inf
        return default if self.seconds is None else self.seconds

    @property
    def hold_seconds(self) -> float:
        """How long after its client has gone the request keeps its slot."""
        if self.kind != "late_abort":
            return 0.0
        return 5.0 if self.seconds is None else self.seconds


@dataclass(frozen=True, slots=True)
class Rule:
    """A fault and the requests it befalls: those that meet every condition given, `times` times per ticket."""

    fault: Fault
    times: int | None = None
    numbers: tuple[int, ...] = ()
    text: str | None = None
    rate: float | None = None
    klass: str | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what `as_json` made; a ValueError names what cannot be read."""
        _refuse_unknown(value, cls)
        fault = value.get("fault")
        if not isinstance(fault, Mapping):
            raise ValueError("a rule needs a fault")
        _refuse_unknown(fault, Fault)
        rest = {name: item for name, item in value.items() if name not in ("fault", "numbers")}
        return cls(Fault(**fault), numbers=tuple(value.get("numbers", ())), **rest)


class FaultPlan:
    """The rules in force, and how often each ticket has met each of them. The first rule that applies wins."""

    def __init__(self, rules: Iterable[Rule] = (), *, seed: int = 0) -> None:
        self.rules = tuple(rules)
        self._seed = seed
        self._met: dict[tuple[Rule, str], int] = {}
        self._tries: dict[tuple[Rule, str], int] = {}

    def draw(self, number: int, ticket: str, klass: str) -> Fault | None:
        """The fault that this call meets, if any; calling it is what counts as a try."""
        rules = self.rules
        if "[[fault:" in ticket:
            rules = (*_marked(ticket), *rules)
        if not rules:
            return None
        key = ticket_hash(ticket)
        for rule in rules:
            if self._applies(rule, number, ticket, klass, key):
                self._met[rule, key] = self._met.get((rule, key), 0) + 1
                return rule.fault
        return None

    def _applies(self, rule: Rule, number: int, ticket: str, klass: str, key: str) -> bool:
        if rule.klass is not None and rule.klass != klass:
            return False
        if rule.numbers and number not in rule.numbers:
            return False
        if rule.text is not None and rule.text not in ticket:
            return False
        if rule.times is not None and self._met.get((rule, key), 0) >= rule.times:
            return False
        return rule.rate is None or self._drawn(rule, key) < rule.rate

    def _drawn(self, rule: Rule, key: str) -> float:
        tries = self._tries.get((rule, key), 0)
        self._tries[rule, key] = tries + 1
        digest = hashlib.sha256(f"{self._seed}|{rule.fault.kind}|{key}|{tries}".encode()).digest()
        return int.from_bytes(digest[:8]) / 2**64


def _marked(ticket: str) -> Iterable[Rule]:
    for marker in _MARKER.finditer(ticket):
        kind, *pairs = marker[1].split()
        details: dict[str, Any] = {}
        times = None
        for pair in pairs:
            name, _, value = pair.partition("=")
            if name == "times":
                times = int(value)
            elif name in ("retry_after", "seconds"):
                details[_MARKER_KEYS[name]] = float(value)
            elif name == "after":
                details[_MARKER_KEYS[name]] = int(value)
            else:
                details[_MARKER_KEYS[name]] = value
        yield Rule(Fault(kind, **details), times=times)


def _refuse_unknown(value: Mapping[str, Any], kind: type[Rule] | type[Fault]) -> None:
    unknown = sorted(set(value) - {field.name for field in fields(kind)})
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r} in a {kind.__name__.lower()}")
