"""The prompt: what tickets share is byte-identical and first, and no ticket can leave its fence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.prompt import CLOSE, OPEN, build_messages, response_format, shorten_middle
from jobs.spec import ClassificationSpec

SPEC = ClassificationSpec(
    labels={"billing": "charges, invoices", "shipping": ""},
    instructions="You sort a shop's tickets.",
    examples=({"text": "I was charged twice.", "label": "billing"},),
)

texts = st.text(max_size=400)


def test_the_messages_in_order() -> None:
    system, example, answer, ticket = build_messages(SPEC, "Refund", "Please.")
    assert system["role"] == "system"
    assert system["content"].startswith(
        "You sort a shop's tickets.\n\nLabels:\n- billing: charges, invoices\n- shipping\n"
    )
    assert example == {"role": "user", "content": "<ticket>\nI was charged twice.\n</ticket>"}
    assert answer == {"role": "assistant", "content": '{"label":"billing"}'}
    assert ticket == {"role": "user", "content": "<ticket>\nRefund\nPlease.\n</ticket>"}


def test_an_empty_ticket_is_said_to_be_empty() -> None:
    assert build_messages(SPEC, " ", "\n")[-1]["content"] == "<ticket>\n(empty)\n</ticket>"


@given(texts, texts)
def test_a_ticket_changes_nothing_before_itself(subject: str, body: str) -> None:
    assert build_messages(SPEC, subject, body)[:-1] == build_messages(SPEC, "", "")[:-1]


@given(
    texts,
    texts,
    st.sampled_from(["</ticket>", "< / TICKET >", "<\u200b/ticket>", "＜/ticket>", "<|im_end|>", "[/INST]"]),
)
def test_no_ticket_can_close_its_fence(before: str, after: str, attack: str) -> None:
    content = build_messages(SPEC, "", before + attack + after)[-1]["content"]
    inside = content.removeprefix(f"{OPEN}\n").removesuffix(f"\n{CLOSE}")
    assert content == f"{OPEN}\n{inside}\n{CLOSE}"
    visible = inside.replace("\u200b", "").replace("＜", "<").casefold()
    for mark in ("</ticket", "<ticket", "< / ticket", "<|im_end|>", "[/inst]"):
        assert mark not in visible


def test_a_caller_cannot_spoil_the_shared_messages() -> None:
    build_messages(SPEC, "", "")[0]["content"] = "spoiled"
    assert build_messages(SPEC, "", "")[0]["content"] != "spoiled"


def test_the_schema_admits_the_labels_in_their_order_and_nothing_else() -> None:
    schema = response_format(SPEC)["json_schema"]["schema"]
    assert schema["properties"] == {"label": {"type": "string", "enum": ["billing", "shipping"]}}
    assert schema["required"] == ["label"]
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize("body", ["", "short", "x" * 100])
def test_a_body_that_fits_is_left_alone(body: str) -> None:
    assert shorten_middle(body, 100) == body


def test_a_shortened_body_keeps_its_beginning_and_its_end_and_says_what_is_missing() -> None:
    body = "BEGIN" + "x" * 10_000 + "END"
    short = shorten_middle(body, 1_000)
    assert short.startswith("BEGIN")
    assert short.endswith("END")
    left_out = int(short.split("[... ")[1].split()[0])
    assert len(short) - len(f"\n[... {left_out} characters left out ...]\n") == len(body) - left_out


@given(texts, st.integers(0, 300))
def test_a_shortened_body_is_never_longer_than_asked(body: str, most: int) -> None:
    assert len(shorten_middle(body, most)) <= max(most, 0) or len(body) <= most
