"""Whether what the model said is an answer."""

from collections.abc import Callable

from jobs.answer import InvalidOutput
from jobs.outcomes import Symptom
from tickets_batch.words import counted
from workers.detail import bounded
from workers.reply import Reply
from workers.symptoms import Finding

Parse = Callable[[str], str | InvalidOutput]
"""The label in an answer, or why there is none."""

_GIVEN_UP = frozenset({"abort", "error"})


def verdict(reply: Reply, parse: Parse) -> str | Finding:
    """The label that the reply gives, or what is wrong with it."""
    if reply.refused:
        return Finding(Symptom.REFUSED, "the model refused to answer")
    if reply.finish_reason == "content_filter":
        return Finding(Symptom.REFUSED, "a content filter stopped the answer")
    if reply.finish_reason in _GIVEN_UP:
        return Finding(Symptom.SERVER_ERROR, f"the engine gave the answer up (finish_reason={reply.finish_reason})")
    if reply.runaway or reply.finish_reason == "length":
        return _unless_whole(reply, parse)
    if not reply.complete:
        return Finding(
            Symptom.DISCONNECTED, f"the stream ended before the answer did ({counted(reply.tokens, 'token')} in)"
        )
    if not reply.text.strip():
        reasoning = ", reasoning only" if reply.reasoned else ""
        return _invalid(f"empty content, finish_reason={bounded(reply.finish_reason or 'none', 20)}{reasoning}")
    parsed = parse(reply.text)
    return _invalid(parsed.reason) if isinstance(parsed, InvalidOutput) else parsed


def _unless_whole(reply: Reply, parse: Parse) -> str | Finding:
    """An answer that was stopped counts if its JSON object is whole: only the white space behind it ran on."""
    if reply.text.rstrip().endswith("}"):
        parsed = parse(reply.text)
        if not isinstance(parsed, InvalidOutput):
            return parsed
    return _invalid(reply.runaway or f"cut short after {counted(reply.tokens, 'token')}, finish_reason=length")


def _invalid(why: str) -> Finding:
    return Finding(Symptom.INVALID_OUTPUT, bounded(why))
