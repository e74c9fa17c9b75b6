"""Where results are written: a table of the user's own."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from tickets_batch.settings.accepts import Accepts
from tickets_batch.settings.secret import URL_OR_REFERENCE, Section, Text, Url

ResultField = Literal[
    "custom_id",
    "state",
    "label",
    "error",
    "truncated",
    "reused",
    "model",
    "prompt_tokens",
    "completion_tokens",
    "latency_seconds",
    "attempts",
    "yields",
    "finished_at",
    "batch_id",
]
SINK_FIELDS: tuple[ResultField, ...] = ("custom_id", "state", "label", "error", "model", "batch_id", "finished_at")


class Sink(Section):
    """A table of yours that gets the result of every ticket: `columns` says which of its columns takes what.

    A row is found again by the column that takes `custom_id`, which needs a unique key.
    """

    url: Annotated[Url, Field(description="the database with a table of yours for results"), Accepts(URL_OR_REFERENCE)]
    table: Annotated[
        str,
        Field(pattern=r"^[^\s.\"]+(\.[^\s.\"]+)?$", description="the table that gets one row per ticket"),
        Accepts('a name, as in "labels" or "support.labels"'),
    ]
    columns: Annotated[
        dict[ResultField, Text],
        Field(description="which of its columns takes what; the one that takes `custom_id` needs a unique key"),
        Accepts('which column takes what, as in { custom_id = "ticket_id", label = "label" }'),
    ] = {field: field for field in SINK_FIELDS}  # noqa: RUF012 - pydantic copies it, and the section is frozen

    @field_validator("columns")
    @classmethod
    def _names_the_ticket(cls, columns: dict[ResultField, str]) -> dict[ResultField, str]:
        if len(columns) < 2 or "custom_id" not in columns:
            raise ValueError("name a column for custom_id, which finds the row, and for something to be written")
        if len(set(columns.values())) != len(columns):
            raise ValueError("two results go into the same column")
        return columns
