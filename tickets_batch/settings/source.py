"""Where the day's tickets come from, and which of its columns holds what."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tickets_batch.settings.accepts import Accepts
from tickets_batch.settings.secret import Section, ServiceUrl, Text

ExportFormat = Literal["zendesk", "freshdesk", "jira"]


class Columns(Section):
    """Which column of the source holds what; a JSONL source may name a nested field with dots."""

    id: Annotated[Text, Field(description="the column with the ticket's id")] = "id"
    subject: Annotated[Text, Field(description="the column with its subject")] = "subject"
    body: Annotated[Text, Field(description="the column with its text")] = "body"
    created_at: Annotated[
        Text, Field(description="the column with the time of its creation, which says to which day it belongs")
    ] = "created_at"
    updated_at: Annotated[
        Text | None,
        Field(
            description="the column with the time of its last change: of a ticket that comes twice, the later counts"
        ),
    ] = None
    priority: Annotated[
        Text | None,
        Field(description="the column with a number or a usual word (`low`, `high`, ...): higher goes first"),
    ] = None


class Urgent(Section):
    """Which tickets go first: those with one of `values` in this column, whatever the case of the letters."""

    column: Annotated[Text, Field(description="the column that says which tickets go first, all others being equal")]
    values: Annotated[
        tuple[Text, ...],
        Field(min_length=1, description="what it holds in those, whatever the case of the letters"),
        Accepts('a list of texts, as in ["urgent", "high"]'),
    ]


class Source(Section):
    """Where the day's tickets come from: a file, or a SQL query with `:date`, `:starts_at`, `:ends_at`.

    `format` says whose export the file is; its columns then need no naming.
    """

    path: Annotated[
        Text | None,
        Field(description="a file, `.csv`, `.jsonl` or `.json`, each also `.gz`; `{date}` in it is the day"),
    ] = None
    format: Annotated[
        ExportFormat | None, Field(description="whose export the file is, so that its columns need no naming")
    ] = None
    url: Annotated[ServiceUrl, Field(description="instead of a file, the database that holds the tickets")] = None
    query: Annotated[
        Text | None, Field(description="the SQL that reads them, with `:date`, or `:starts_at` and `:ends_at`")
    ] = None
    columns: Columns = Columns()
    urgent: Urgent | None = None

    @model_validator(mode="after")
    def _one_order(self) -> Self:
        if self.urgent is not None and self.columns.priority is not None:
            raise ValueError("give either columns.priority, or urgent, not both")
        return self

    @model_validator(mode="after")
    def _file_or_query(self) -> Self:
        if self.path is not None and self.url is not None:
            raise ValueError("give either path, or url with query, not both")
        if (self.url is None) != (self.query is None):
            raise ValueError("url and query go together: give both, or neither")
        if self.url is not None and self.format is not None:
            raise ValueError("format is for files: a query names its own columns")
        return self
