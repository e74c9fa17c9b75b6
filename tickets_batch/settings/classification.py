"""What the model is asked about each ticket."""

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from tickets_batch.settings.accepts import Accepts
from tickets_batch.settings.secret import Section, Text


class Example(Section):
    """One solved ticket shown to the model."""

    text: Annotated[Text, Field(description="of a solved ticket that the model is shown, its text")]
    label: Annotated[Text, Field(description="and its label")]


class Classification(Section):
    """What the model is asked: labels with descriptions, instructions, solved examples, an output cap in tokens."""

    labels: Annotated[
        dict[str, str],
        Field(min_length=2, description="the labels, each with what it means"),
        Accepts('write a table of at least two, label = "description": { billing = "charges", shipping = "parcels" }'),
    ]
    instructions: Annotated[str, Field(description="what the model is told before the labels")] = (
        "You sort support tickets."
    )
    examples: tuple[Example, ...] = ()
    max_output_tokens: Annotated[
        int, Field(ge=4, le=4096, description="the cap on the answer to a ticket, in tokens, which are all booked")
    ] = 32

    @field_validator("labels")
    @classmethod
    def _labels_are_distinct(cls, labels: dict[str, str]) -> dict[str, str]:
        folded = [label.strip().casefold() for label in labels]
        if "" in folded:
            raise ValueError("a label is empty")
        if len(set(folded)) != len(folded):
            raise ValueError("two labels differ only in case or white space")
        return labels

    @field_validator("examples")
    @classmethod
    def _examples_use_labels(cls, examples: tuple[Example, ...], info: ValidationInfo) -> tuple[Example, ...]:
        labels = info.data.get("labels")
        unknown = sorted({example.label for example in examples} - set(labels)) if labels else []
        if unknown:
            raise ValueError(f"no such label: {', '.join(unknown)}; labels are {', '.join(labels or ())}")
        return examples
