"""What admission reads in a request, and the cap that it writes into it."""

import json
from typing import Any

import pytest

from gateway.error import Denied
from gateway.prompt import MESSAGE_BYTES, PART_BYTES, Prompt, weigh

MOST = 100


def read(values: Any, most: int = MOST) -> Prompt:
    return Prompt.read(json.dumps(values).encode(), most)


def chat(**values: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "hello"}]} | values


class TestCap:
    @pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
    def test_a_body_under_the_cap_goes_on_byte_for_byte(self, name: str) -> None:
        body = b'{ "messages" : [],"temperature":1.00, "%b":  99 , "x": "\\u00e9"}' % name.encode()
        prompt = Prompt.read(body, MOST)
        assert prompt.body == body
        assert prompt.output_tokens == 99

    @pytest.mark.parametrize("value", [None, "absent"])
    def test_it_is_written_in_where_there_is_none(self, value: object) -> None:
        prompt = read(chat() if value == "absent" else chat(max_tokens=None))
        assert json.loads(prompt.body) == chat(max_tokens=MOST)
        assert prompt.output_tokens == MOST

    @pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n_predict"])
    @pytest.mark.parametrize("value", [101, 1e9, -1])
    def test_it_stands_in_place_of_a_higher_one_by_any_name(self, name: str, value: float) -> None:
        prompt = read(chat(**{name: value}, seed=7))
        assert json.loads(prompt.body) == chat(**{name: MOST}, seed=7)
        assert prompt.output_tokens == MOST

    def test_of_two_names_the_larger_counts(self) -> None:
        assert read(chat(max_tokens=10, max_completion_tokens=50)).output_tokens == 50

    def test_not_a_number_is_no_way_around_it(self) -> None:
        with pytest.raises(Denied, match="not valid JSON"):
            Prompt.read(b'{"max_tokens": NaN}', MOST)

    @pytest.mark.parametrize("value", ["1000", True, [1]])
    def test_what_an_engine_might_read_as_a_number_is_refused(self, value: object) -> None:
        with pytest.raises(Denied, match="max_tokens must be a whole number"):
            read(chat(max_tokens=value))

    def test_every_choice_may_be_as_long(self) -> None:
        assert read(chat(max_tokens=10, n=3)).output_tokens == 30
        assert read({"prompt": ["a", "b"], "max_tokens": 10, "best_of": 2}).output_tokens == 40
        with pytest.raises(Denied, match="n must be at most"):
            read(chat(n=1_000_000))

    def test_the_rest_survives_being_written_anew(self) -> None:
        values = chat(big=2**70, text="Größe \ud83d \U0001f600", nested={"a": [None, 1.5, True]})
        assert json.loads(read(values).body) == values | {"max_tokens": MOST}


class TestSize:
    def test_text_counts_in_bytes(self) -> None:
        assert read(chat(messages=[{"role": "user", "content": "Größe"}])).size_bytes == 7 + MESSAGE_BYTES

    def test_parts_of_text_count_as_text(self) -> None:
        parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
        prompt = read(chat(messages=[{"role": "user", "content": parts}]))
        assert (prompt.size_bytes, prompt.is_text) == (6 + MESSAGE_BYTES, True)

    def test_a_picture_is_no_megabyte_of_text(self) -> None:
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1_000_000}}
        prompt = read(chat(messages=[{"role": "user", "content": [picture]}]))
        assert (prompt.size_bytes, prompt.is_text) == (PART_BYTES + MESSAGE_BYTES, False)

    def test_tools_are_part_of_the_prompt(self) -> None:
        tools = [{"type": "function", "function": {"name": "look_up", "parameters": {}}}]
        assert read(chat(tools=tools)).size_bytes == read(chat()).size_bytes + len(json.dumps(tools))

    def test_tokens_need_no_estimate(self) -> None:
        prompt = read({"prompt": [1, 2, 3]})
        assert (prompt.size_bytes, prompt.exact_tokens) == (0, 3)
        assert read({"prompt": [[1, 2], [3]]}).exact_tokens == 3

    def test_messages_weigh_the_same_for_the_guard(self) -> None:
        assert weigh(chat()["messages"]) == read(chat()).size_bytes


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"n": ' + b"9" * 5000 + b"}"])
def test_what_is_no_request_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(Denied) as denied:
        Prompt.read(body, MOST)
    assert denied.value.status == 400


def test_a_message_must_be_an_object() -> None:
    with pytest.raises(Denied, match="every message must be an object"):
        read(chat(messages=["hello"]))
