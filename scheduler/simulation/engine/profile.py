"""How fast an engine is, how much it holds, and in which order it serves."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

QueuePolicy = Literal["fcfs", "priority"]


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """The speed and the bounds of one continuous-batching engine.

    A step takes `step_base_seconds + prefill tokens * prefill_token_seconds + decoding sequences *
    decode_sequence_seconds`. The defaults stand for a 7B model in 8-bit weights on one middle GPU (about
    0.8 TB/s, 230 usable TFLOP/s):

    - 7 GB of weights are read once a step, about 9 ms, and the framework adds about as much: 20 ms;
    - a prompt token costs 14 GFLOP, about 0.06 ms: 30,000 tokens in chunks of 2,048 take 15 steps, 2.1 s;
    - a decoding sequence adds its own KV read and sampling, about 0.15 ms;
    - so a ticket of 500 tokens in and 40 out takes 0.84 s alone, and about 1.5 s beside 19 others.

    With `policy="priority"` a *higher* number is served later, as vLLM does; a running sequence is never put back.
    With "fcfs" a priority does nothing, or is refused with `refuses_priority`: versions of vLLM do either.
    A queue longer than `max_queue` (beyond what free slots will take) is refused; None never refuses, as vLLM.
    The first `prefix_cache_tokens` of a prompt cost nothing once the same prefix has been prefilled.
    The engine notices an abort `abort_delay_steps` steps later than the next step boundary.
    """

    slots: int = 20
    step_token_budget: int = 2048
    step_base_seconds: float = 0.020
    prefill_token_seconds: float = 0.000_06
    decode_sequence_seconds: float = 0.000_15
    kv_capacity_tokens: int = 120_000
    context_tokens: int = 32_768
    policy: QueuePolicy = "fcfs"
    refuses_priority: bool = False
    max_queue: int | None = None
    prefix_cache_tokens: int = 0
    abort_delay_steps: int = 0

    def __post_init__(self) -> None:
        if self.slots < 1 or self.kv_capacity_tokens < 1 or self.context_tokens < 2:
            raise ValueError("an engine needs at least one slot, one KV token and a context of two tokens")
        if self.step_token_budget <= self.slots:
            raise ValueError(
                f"step_token_budget {self.step_token_budget} must exceed slots {self.slots}: "
                "every slot decodes one token in each step and prefill needs the rest"
            )
        seconds = (self.step_base_seconds, self.prefill_token_seconds, self.decode_sequence_seconds)
        if min(seconds) < 0 or self.prefix_cache_tokens < 0 or self.abort_delay_steps < 0:
            raise ValueError("times, cached tokens and delays cannot be negative")
        if self.policy not in ("fcfs", "priority"):
            raise ValueError(f"policy is {self.policy!r}; accepted: fcfs, priority")

    @classmethod
    def instant(cls) -> Self:
        """An engine whose steps take no time and which never runs out of room."""
        return cls(
            slots=4096,
            step_token_budget=1 << 30,
            step_base_seconds=0.0,
            prefill_token_seconds=0.0,
            decode_sequence_seconds=0.0,
            kv_capacity_tokens=1 << 40,
        )

    def at_speed(self, factor: float) -> Self:
        """The same engine, `factor` times as fast."""
        if factor <= 0:
            raise ValueError(f"speed is {factor}; it must be above zero")
        return replace(
            self,
            step_base_seconds=self.step_base_seconds / factor,
            prefill_token_seconds=self.prefill_token_seconds / factor,
            decode_sequence_seconds=self.decode_sequence_seconds / factor,
        )

    def changed(self, values: Mapping[str, Any]) -> Self:
        """A copy with some fields changed; a ValueError names a field that does not exist."""
        unknown = sorted(set(values) - {field.name for field in fields(self)})
        if unknown:
            raise ValueError(f"unknown profile field {unknown[0]!r}")
        return replace(self, **values)
