"""What the engine says instead of the right answer under each fault of that kind."""

import json
from dataclasses import replace

from tests.engine.answer import Answer, AnswerSettings, count_tokens, label_answer
from tests.engine.call import Prompt
from tests.engine.faults import Fault

DEFAULT_CAP_TOKENS = 512
"""How long endless white space goes on for a request that sets no cap."""


def wrong_answer(fault: Fault, right: Answer, prompt: Prompt, settings: AnswerSettings) -> Answer:
    """The answer that a fault of the wrong-answer kind puts in place of the right one; it takes as long or longer."""
    label = right.label or "unknown"
    match fault.kind:
        case "cut_off":
            kept = max(1, len(right.text) // 2)
            return replace(right, text=right.text[:kept], finish_reason="length", label=None)
        case "white_space":
            cap = prompt.max_tokens or DEFAULT_CAP_TOKENS
            return Answer("{" + " \n" * int(cap * settings.bytes_per_token / 2), cap, "length")
        case "content_filter_answer":
            return replace(right, text="", finish_reason="content_filter", label=None)
        case "empty":
            return Answer("", 1)
        case "reasoning_only":
            return replace(right, text="", label=None, reasoning=f"It is about {label}, so the label is {label}.")
        case "wrong_label":
            label = fault.label or "not one of the labels"
            text = label_answer(label)
        case "fenced":
            text = f"```json\n{right.text}\n```"
        case "list":
            text = json.dumps([label])
        case "ignore_response_format":
            text = f"{label.upper()}."
        case _:
            text = f"I would say that this is about {label}."
    tokens = max(right.tokens, count_tokens(text, settings.bytes_per_token))
    return Answer(text, min(tokens, prompt.max_tokens or tokens), label=label)
