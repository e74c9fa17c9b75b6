"""The body of a chat request: refused, or sent on as it came but for its caps, and never for more than is booked."""

import json
from pathlib import Path
from typing import Any

from gateway.error import Denied
from gateway.prompt import CAPS, MOST_CHOICES, Prompt
from tests.fuzz.claims import one_line
from tests.fuzz.target import Target

MOST_TOKENS = 100


def judge(data: bytes, folder: Path) -> None:
    try:
        prompt = Prompt.read(data, MOST_TOKENS)
    except Denied as denied:
        check_refusal(denied)
        return
    asked, sent = json.loads(data), json.loads(prompt.body)
    check_caps(sent, prompt)
    assert {name: value for name, value in sent.items() if name not in CAPS} == {
        name: value for name, value in asked.items() if name not in CAPS
    }
    assert prompt.size_bytes >= least_bytes(asked)
    again = Prompt.read(prompt.body, MOST_TOKENS)
    assert again == prompt, "what is sent on reads otherwise"


def check_refusal(denied: Denied) -> None:
    one_line(denied)
    assert denied.status == 400
    json.dumps(denied.body).encode()


def check_caps(sent: dict[str, Any], prompt: Prompt) -> None:
    caps = [sent[name] for name in CAPS if sent.get(name) is not None]
    assert caps
    assert all(0 <= cap <= MOST_TOKENS for cap in caps)
    choices = max(1, *(sent.get(name) or 1 for name in ("n", "best_of")))
    assert choices <= MOST_CHOICES
    prompts = sent.get("prompt")
    several = len(prompts) if isinstance(prompts, list) and prompts and not isinstance(prompts[0], int) else 1
    assert prompt.output_tokens >= int(max(1, *caps, 1)) * choices * several
    assert prompt.exact_tokens >= 0


def least_bytes(asked: dict[str, Any]) -> int:
    """The bytes of the texts that nobody could overlook."""
    messages = asked.get("messages")
    said = [message.get("content") for message in messages] if isinstance(messages, list) else []
    texts = [*said, asked.get("prompt")]
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts if isinstance(text, str))


TARGET = Target(
    judge,
    seeds=(
        b'{"model": "m", "messages": [{"role": "user", "content": "hello"}]}',
        b'{"messages": [{"content": [{"type": "text", "text": "\xc3\xa9"}, {"type": "image_url"}]}], "n": 2}',
        b'{"prompt": ["a", [1, 2], "b"], "best_of": 3, "max_tokens": 1e3, "stream": true}',
        b'{"prompt": [1, 2, 3], "max_completion_tokens": -1, "n_predict": 7}',
        b'{"messages": [], "tools": [{"a": 1}], "max_tokens": 1, "max_tokens": 9}',
        b'{"messages": [{"tool_calls": [1]}], "n": 1e999}',
        b'{"messages": [7], "n": 0.5}',
        b'{"messages": "\\ud800", "prompt": null}',
        b"[" * 500,
        b"\xff\xfe{\0}\0",
    ),
    words=('"messages": [', '"content": ', '"prompt": ', '"n": ', '"best_of": ', '"max_tokens": ', '"n_predict": ',
           '"max_completion_tokens": ', '"tools": ', '"stream": true', "1e9", "-1", "NaN", "null", "{", "}", "[", "]"),
)  # fmt: skip
