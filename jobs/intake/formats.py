"""The exports of well-known help desks: how they name the parts of a ticket, and what they write differently.

A name is a column of a CSV file or a dotted path into a JSON object; of several the first that holds something counts.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from jobs.intake.reading import Record

# As Jira's CSV writes a comment into one cell: when, who, what. A description with semicolons begins with no date.
_DATE = r"\d{1,4}[-/. ]\w{1,9}[-/. ]\d{2,4}(?:[ T,]+\d{1,2}:\d{2}[^;\n]{0,20})?"
_COMMENT_CELL = re.compile(rf"\s*{_DATE};[^;\n]{{1,80}};(?P<text>.*)", re.DOTALL)
DEEPEST_NODE = 100  # of a document; an editor makes a tenth of that
_BLOCKS = {"blockquote", "codeBlock", "heading", "listItem", "paragraph", "rule", "tableRow"}


@dataclass(frozen=True, slots=True)
class Format:
    """One product's export. `priorities` are its own words and numbers, by what they mean here.

    `tag_separator` stands between the tags of one cell, and `body` makes text of a body that is none.
    """

    names: Mapping[str, tuple[str, ...]]
    priorities: Mapping[str, str] = field(default_factory=dict)
    tag_separator: str | None = None
    body: Callable[[object], object] = lambda body: body

    def read(self, record: Record) -> Record:
        """The record in the usual terms."""
        priority = str(record.priority).strip().lower()
        return record._replace(
            body=self.body(record.body),
            priority=self.priorities.get(priority, record.priority),
            urgent=self._tags(record.urgent),
        )

    def _tags(self, value: object) -> object:
        """A cell of many tags as itself and each of them."""
        if self.tag_separator is None or not isinstance(value, str):
            return value
        return [value, *value.split(self.tag_separator)]


def _jira_body(body: object) -> object:
    """A document of the newer interface as text, and a comment's cell without its date and author."""
    if isinstance(body, dict):
        return re.sub(r"\n{2,}", "\n", _document_text(body)).strip()
    if isinstance(body, str) and (comment := _COMMENT_CELL.fullmatch(body)):
        return comment["text"]
    return body


def _document_text(node: object, depth: int = 0) -> str:
    if not isinstance(node, dict) or depth > DEEPEST_NODE:
        return ""
    kind, attributes = str(node.get("type")), node.get("attrs")
    if kind == "text":
        return str(node.get("text", ""))
    if kind == "hardBreak":
        return "\n"
    if kind in ("mention", "emoji") and isinstance(attributes, dict):
        return str(attributes.get("text", ""))
    inside = node.get("content")
    text = "".join(_document_text(child, depth + 1) for child in inside) if isinstance(inside, list) else ""
    if kind in ("tableCell", "tableHeader"):
        return text.strip() + " "
    return f"{text}\n" if kind in _BLOCKS else text


FORMATS: Mapping[str, Format] = {
    "zendesk": Format(
        names={
            "id": ("id", "ticket id"),
            "subject": ("subject", "raw_subject"),
            "body": ("description", "comments.0.plain_body", "comments.0.body"),
            "created_at": ("created_at", "created at"),
            "updated_at": ("updated_at", "updated at"),
            "priority": ("priority",),
        },
        tag_separator=" ",
    ),
    "freshdesk": Format(
        names={
            "id": ("display_id", "id", "ticket id"),
            "subject": ("subject",),
            "body": ("description_text", "description", "description_html"),
            "created_at": ("created_at", "created time"),
            "updated_at": ("updated_at", "last update time", "last updated time"),
            "priority": ("priority",),
        },
        priorities={"1": "low", "2": "medium", "3": "high", "4": "urgent"},
        tag_separator=",",
    ),
    "jira": Format(
        names={
            "id": ("issue key", "key"),
            "subject": ("summary", "fields.summary"),
            "body": ("description", "fields.description", "comment", "fields.comment.comments.0.body"),
            "created_at": ("created", "fields.created"),
            "updated_at": ("updated", "fields.updated"),
            "priority": ("priority", "fields.priority.name"),
        },
        priorities={"blocker": "urgent", "major": "high", "minor": "low", "trivial": "lowest"},
        body=_jira_body,
    ),
}
