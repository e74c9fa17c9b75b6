"""One model deployment: where it is, what it carries, and who owns how much of that."""

import json
import re
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from tickets_batch.settings.accepts import Accepts
from tickets_batch.settings.secret import Secret, Section, Text
from tickets_batch.settings.signal import Signal

HOURS = re.compile(r"([01]\d|2[0-3]):[0-5]\d-(?:([01]\d|2[0-3]):[0-5]\d|24:00)", re.ASCII)
MOST_SLOTS, MOST_TOKENS = 1_000_000, 2**31 - 1  # beyond any fleet, and exact in every place that counts them
TOKENS_PER_SLOT = 4000  # a slot's share of the token capacity where none is given: a long ticket and its answer

Engine = Literal["vllm", "sglang", "tensorrt-llm", "tgi", "llama.cpp", "openai"]


class Capacity(Section):
    """An amount on both axes: requests at a time, and tokens in flight."""

    slots: Annotated[int, Field(ge=0, le=MOST_SLOTS, description="requests at a time")]
    tokens: Annotated[
        int,
        Field(ge=0, le=MOST_TOKENS, description="tokens in flight: of each request its prompt and its output cap"),
    ]


class Protected(Section):
    """What each class owns; the rest of the capacity is shared."""

    interactive: Annotated[Capacity, Field(description="what the chat owns")] = Capacity(slots=0, tokens=0)
    batch: Annotated[Capacity, Field(description="what batch owns, its floor")]

    @field_validator("batch")
    @classmethod
    def _batch_cannot_starve(cls, batch: Capacity) -> Capacity:
        if batch.slots < 1 or batch.tokens < 1:
            raise ValueError("at least 1 slot and 1 token, or batch could starve")
        return batch


class Pool(Section):
    """One model deployment: an endpoint and a capacity."""

    name: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9_-]{1,40}$", description="what this deployment of a model is called"),
        Accepts("1 to 40 letters, digits, - or _"),
    ]
    base_url: Annotated[
        str,
        Field(pattern=r"^https?://[^\s/]\S*$", description="the address of its OpenAI-compatible interface"),
        Accepts('an http or https URL, as in "http://127.0.0.1:8000/v1"'),
    ]
    model: Annotated[Text, Field(description="the model's name there")]
    engine: Annotated[
        Engine,
        Field(description="what serves it, which decides about its metrics and priority"),
    ] = "openai"
    api_key: Annotated[
        Secret | None,
        Field(description="a reference to the key that it asks for"),
        Accepts('only a reference to the key: { env = "NAME" } or { file = "/path" }'),
    ] = None
    capacity: Annotated[Capacity, Field(description="what it carries")]
    protected: Protected
    ttft_target_seconds: Annotated[
        float,
        Field(
            gt=0, allow_inf_nan=False, description="the chat's time to first token is to stay under this, in seconds"
        ),
    ] = 0.8
    request_timeout_seconds: Annotated[
        float,
        Field(
            gt=0,
            allow_inf_nan=False,
            description="how long a whole call of batch may take, and the gateway waits for a next word",
        ),
    ] = 120.0
    shared_hours: Annotated[
        tuple[str, ...] | None,
        Field(description="when batch may borrow, in local time; without it, always"),
        Accepts('a list of ranges in local time, as in ["22:00-05:00"]; without it the shared part is open'),
    ] = None
    cost_per_hour: Annotated[
        float | None,
        Field(ge=0, allow_inf_nan=False, description="what an hour of it costs, in whatever currency"),
        Accepts("what an hour of it costs, as a number, in whatever currency"),
    ] = None
    signal: tuple[Signal, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        """Fill what may be left out: tokens from slots, and a protected batch share of one slot.

        Where the capacity cannot be used it is filled all the same: that alone is then told.
        """
        if not isinstance(data, dict):
            return data
        filled, slots, tokens = dict(data), 1, TOKENS_PER_SLOT
        if isinstance(capacity := data.get("capacity"), dict):
            slots = _whole(capacity.get("slots"), 1)
            filled["capacity"] = capacity = {"tokens": slots * TOKENS_PER_SLOT, **capacity}
            tokens = _whole(capacity["tokens"], slots * TOKENS_PER_SLOT)
        return {"protected": {"batch": {"slots": 1, "tokens": tokens // max(1, slots)}}, **filled}

    @field_validator("shared_hours")
    @classmethod
    def _are_ranges(cls, hours: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if hours == ():
            raise ValueError('it is empty: write at least one range, as in ["22:00-05:00"], or leave it out')
        for text in hours or ():
            if HOURS.fullmatch(text) is None:
                shown = json.dumps(text, ensure_ascii=False)
                raise ValueError(f'{shown} is no range of hours: write HH:MM-HH:MM, as in "22:00-05:00"')
            begins, ends = text.split("-")
            if begins == ends:
                raise ValueError(f'"{text}" ends when it begins: write "00:00-24:00" for the whole day')
        return hours

    @field_validator("protected")
    @classmethod
    def _protected_fits(cls, protected: Protected, info: ValidationInfo) -> Protected:
        capacity = info.data.get("capacity")
        if capacity is None:
            return protected
        for axis in ("slots", "tokens"):
            owned = getattr(protected.interactive, axis) + getattr(protected.batch, axis)
            if owned > getattr(capacity, axis):
                raise ValueError(f"{axis} add up to {owned}, over the capacity of {getattr(capacity, axis)}")
        return protected


def _whole(value: object, instead: int) -> int:
    """The number, be it given as text; `instead` where it is none."""
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return value if isinstance(value, int) else instead
