"""The engine's own second line of defence, for the moments in which admission is not asked. Pure.

The options are those of the engines' own documentation: vLLM's engine arguments `--scheduling-policy` and
`--max-num-queued-tokens`, whose formula (target TTFT times prefill throughput) is used here; SGLang's server arguments
`--enable-priority-scheduling`, `--schedule-low-priority-values-first` and `--max-queued-requests`; the launcher's
`--max-concurrent-requests` of TGI; `--parallel` of llama-server.
"""

from dataclasses import dataclass

from tickets_batch.settings import Pool

NOTHING = "no second line of defence of this engine is known: the admission here is the only one"


@dataclass(frozen=True, slots=True)
class PrefillRate:
    """Prompt tokens a second, and where the number comes from."""

    tokens_per_second: int
    origin: str


def second_line(pool: Pool, rate: PrefillRate | None) -> str:
    """How the engine of this pool should be started so that it protects the chat by itself too."""
    match pool.engine:
        case "vllm":
            return (
                "second line of defence: start vLLM with --scheduling-policy priority, where the lower number goes "
                f"first (batch sends 1, a chat request without one counts as 0), and {_queued_tokens(pool, rate)}"
            )
        case "sglang":
            return (
                "second line of defence: start SGLang with --enable-priority-scheduling, where the higher number goes "
                "first (batch sends the lowest there is; never with --schedule-low-priority-values-first, which turns "
                "that round), and with --max-queued-requests, over which it turns requests away"
            )
        case "tgi":
            return (
                f"second line of defence: start TGI with --max-concurrent-requests {pool.capacity.slots}, as many as "
                "capacity.slots, over which it turns requests away; it knows no priority"
            )
        case "llama.cpp":
            return (
                f"second line of defence: llama-server has none but --parallel {pool.capacity.slots}, as many as "
                "capacity.slots; more requests wait there in the order in which they came"
            )
        case _:
            return NOTHING


def _queued_tokens(pool: Pool, rate: PrefillRate | None) -> str:
    target = f"{pool.ttft_target_seconds:g} s, the target,"
    warning = "over that it answers 503, to the chat too"
    if rate is None:
        return (
            f"--max-num-queued-tokens of about {target} x the prompt tokens that it prefills in a second, of all its "
            f"replicas, which tickets-batch plan --measure finds out; {warning}"
        )
    tokens = round(pool.ttft_target_seconds * rate.tokens_per_second)
    return (
        f"--max-num-queued-tokens {tokens}: {target} x {rate.tokens_per_second:,} prompt tokens a second "
        f"{rate.origin}; {warning}"
    )
