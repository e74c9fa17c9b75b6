"""The first text of an answer, and the engine's count at its end, wherever the bytes are cut."""

import pytest

from gateway.hearing import Hearing

ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
TEXT = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":17,"completion_tokens":2}}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize("size", [1, 2, 7, 50, 10_000])
def test_the_first_text_is_heard_once_wherever_the_bytes_are_cut(size: int) -> None:
    hearing = Hearing()
    stream = ROLE + TEXT + TEXT + USAGE
    heard_at = [end for end in range(0, len(stream), size) if hearing.hear(stream[end : end + size])]
    assert len(heard_at) == 1
    assert heard_at[0] + size > len(ROLE)
    assert heard_at[0] <= len(ROLE + TEXT)
    assert hearing.prompt_tokens() == 17


@pytest.mark.parametrize(
    "delta",
    [
        b'"delta":{"content": "x"}',
        b'"text":"x"',
        b'"delta":{"reasoning_content":"x"}',
        b'"delta":{"reasoning":"x"}',
        b'"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":""}}]}',
        b'"delta":{"content":"\\n"}',
    ],
)
def test_every_kind_of_text_is_a_first_token(delta: bytes) -> None:
    assert Hearing().hear(b'data: {"choices":[{%b}]}\n\n' % delta)


@pytest.mark.parametrize(
    "said",
    [ROLE, b": keep-alive\n\n", b'data: {"choices":[{"delta":{"content":null}}]}\n\n', b"data: [DONE]\n\n", USAGE],
)
def test_what_is_no_text_is_not(said: bytes) -> None:
    assert not Hearing().hear(said)


def test_text_about_tokens_is_no_count() -> None:
    hearing = Hearing()
    hearing.hear(b'{"choices":[{"message":{"content":"{\\"prompt_tokens\\": 5}"}}]}')
    assert hearing.prompt_tokens() is None


def test_the_count_of_a_long_answer_is_found_at_its_end() -> None:
    hearing = Hearing()
    hearing.hear(b'{"choices":[{"message":{"content":"' + b"x" * 100_000)
    hearing.hear(b'"}}],"usage":{"prompt_tokens": 12, "total_tokens": 90}}')
    assert hearing.prompt_tokens() == 12
