"""The bytes of an answer: server-sent events and whole objects, for chat and for completions."""

import json
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from tests.engine.call import Call, Surface


def event_head(surface: Surface, call_id: str, created: int, model: str) -> str:
    """What every event of one stream begins with."""
    kind = "chat.completion.chunk" if surface == "chat" else "text_completion"
    return f'data: {{"id":"{call_id}","object":"{kind}","created":{created},"model":{json.dumps(model)},"choices":['


def send_opening(call: Call) -> None:
    """What comes before the first text of a stream: the role, and reasoning where there is some."""
    if call.prompt.surface == "chat":
        _send_choice(call, '"delta":{"role":"assistant","content":""}')
        if call.answer.reasoning is not None:
            _send_choice(call, f'"delta":{{"reasoning_content":{quoted(call.answer.reasoning)}}}')


def send_text(call: Call, text: str) -> None:
    if call.prompt.surface == "chat":
        _send_choice(call, f'"delta":{{"content":{quoted(text)}}}')
    else:
        _send_choice(call, f'"text":{quoted(text)}')


def send_closing(call: Call) -> None:
    """The end of a stream: the reason, the usage (an event without choices) if asked for, and the end mark."""
    exchange = call.exchange
    nothing = '"delta":{}' if call.prompt.surface == "chat" else '"text":""'
    _send_choice(call, nothing, f'"{call.answer.finish_reason}"')
    if call.prompt.include_usage and call.row.fault != "missing_usage":
        exchange.send(f'{call.event_head}],"usage":{json.dumps(_usage(call))}}}\n\n'.encode())
    exchange.send(b"data: [DONE]\n\n")
    exchange.end_stream()


def whole(call: Call) -> bytes:
    """The answer of a request that does not stream."""
    answer = call.answer
    choice: dict[str, Any] = {"index": 0, "finish_reason": answer.finish_reason, "logprobs": None}
    if call.prompt.surface == "chat":
        choice["message"] = {"role": "assistant", "content": answer.text}
        if answer.reasoning is not None:
            choice["message"]["reasoning_content"] = answer.reasoning
    else:
        choice["text"] = answer.text
    body: dict[str, Any] = {
        "id": call.row.id,
        "object": "chat.completion" if call.prompt.surface == "chat" else "text_completion",
        "created": call.created,
        "model": call.prompt.model,
        "choices": [choice],
    }
    if call.row.fault != "missing_usage":
        body["usage"] = _usage(call)
    return json.dumps(body).encode()


def models(model: str, context_tokens: int) -> bytes:
    card = {"id": model, "object": "model", "created": 0, "owned_by": "tests", "max_model_len": context_tokens}
    return json.dumps({"object": "list", "data": [card]}).encode()


def _send_choice(call: Call, said: str, finish_reason: str = "null") -> None:
    call.exchange.send(
        f'{call.event_head}{{"index":0,{said},"logprobs":null,"finish_reason":{finish_reason}}}]}}\n\n'.encode()
    )


def _usage(call: Call) -> dict[str, Any]:
    prompt, completion = call.row.prompt_tokens, call.answer.tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": call.row.cached_tokens},
    }
