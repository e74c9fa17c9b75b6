"""The classification spec: what the model is asked, and what it may answer."""

import hashlib
import json
import unicodedata
from functools import cached_property
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from tickets_batch.errors import SettingsError
from tickets_batch.settings import Classification

PROMPT_LAYOUT = 1  # raise it with every change of the text that jobs.prompt puts around a spec
LONGEST_LABEL_CHARS = 100
MOST_CHARS_PER_TOKEN = 6  # generous: an output cap that is too small by this measure cuts every answer short

Label = Annotated[str, Field(min_length=1, max_length=LONGEST_LABEL_CHARS)]


class Example(BaseModel):
    """One solved ticket shown to the model."""

    model_config = ConfigDict(frozen=True, extra="forbid", from_attributes=True)

    text: str
    label: str


class ClassificationSpec(BaseModel):
    """The labels with what they mean (in the order in which the model sees them), instructions, solved examples.

    `max_output_tokens` caps one answer. Raises pydantic's ValidationError when the parts do not fit together.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", from_attributes=True)

    labels: Annotated[dict[Label, str], Field(min_length=2)]
    instructions: str = ""
    examples: tuple[Example, ...] = ()
    max_output_tokens: Annotated[int, Field(ge=4, le=4096)] = 32

    @classmethod
    def of(cls, settings: Classification) -> Self:
        """The spec that the settings ask for. Raises SettingsError, one line per problem."""
        try:
            return cls.model_validate(settings)
        except ValidationError as error:
            raise SettingsError("\n".join(map(_in_words, error.errors(include_url=False)))) from error

    @model_validator(mode="after")
    def _labels_are_told_apart(self) -> Self:
        seen: dict[str, str] = {}
        for label in self.labels:
            if label != label.strip() or not label.isprintable():
                raise ValueError(f"label {label!r} begins or ends with white space, or holds a control character")
            if other := seen.get(folded(label)):
                raise ValueError(f"labels {other!r} and {label!r} differ only in case")
            seen[folded(label)] = label
        return self

    @model_validator(mode="after")
    def _examples_fit(self) -> Self:
        for number, example in enumerate(self.examples, 1):
            if not example.text.strip():
                raise ValueError(f"example {number} has no text")
            if example.label not in self.labels:
                known = ", ".join(self.labels)
                raise ValueError(f"example {number} has the label {example.label!r}; labels are {known}")
        return self

    @model_validator(mode="after")
    def _answers_fit_the_cap(self) -> Self:
        longest = max(self.labels, key=lambda label: len(answer_text(label)))
        if len(answer_text(longest)) > self.max_output_tokens * MOST_CHARS_PER_TOKEN:
            raise ValueError(f"max_output_tokens = {self.max_output_tokens} is too few for the label {longest!r}")
        return self

    @cached_property
    def hash(self) -> str:
        """SHA-256, in hex, of everything that shapes the prompt and the answer, the order of the labels included."""
        parts = {
            "layout": PROMPT_LAYOUT,
            "labels": list(self.labels.items()),
            "instructions": self.instructions,
            "examples": [(example.text, example.label) for example in self.examples],
            "max_output_tokens": self.max_output_tokens,
        }
        return hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()

    @cached_property
    def labels_by_folded_form(self) -> dict[str, str]:
        """Each label under the form that differences of case do not touch."""
        return {folded(label): label for label in self.labels}


def folded(label: str) -> str:
    """The label without differences of case, or of how its letters are composed."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", label).casefold())


def answer_text(label: str) -> str:
    """The answer that the model is shown and asked for: JSON without any white space around its parts."""
    return json.dumps({"label": label}, ensure_ascii=False, separators=(",", ":"))


def _in_words(problem: ErrorDetails) -> str:
    where = ".".join(("classification", *(str(part) for part in problem["loc"] if part != "[key]")))
    return f"{where}: {problem['msg'].removeprefix('Value error, ')}"
