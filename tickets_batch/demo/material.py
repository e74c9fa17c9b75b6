"""What the demo classifies, and how it asks: tickets written for it, with labels given by hand."""

import csv
import tomllib
from dataclasses import dataclass
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Any

from jobs.spec import ClassificationSpec

SUMMARY_CHARS = 44


@dataclass(frozen=True, slots=True)
class DemoTicket:
    """One ticket and the label that people gave it."""

    id: str
    summary: str
    expected: str


def classification() -> dict[str, Any]:
    """The `[classification]` table that this model does best with."""
    values: dict[str, Any] = tomllib.loads(_read("classification.toml"))["classification"]
    return values


def spec() -> ClassificationSpec:
    """What is asked of the model, as the workers ask it."""
    return ClassificationSpec.model_validate(classification())


def write_tickets(path: Path, day: date) -> list[DemoTicket]:
    """Write the tickets as a source of `day`, as if all had come in on it; returns what is expected of each."""
    rows = list(csv.DictReader(_read("tickets.csv").splitlines(keepends=True)))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "created_at", "subject", "body"])
        for row in rows:
            writer.writerow([row["id"], f"{day}T{row['created_at']}", row["subject"], row["body"]])
    return [DemoTicket(row["id"], _summary(row), row["expected"]) for row in rows]


def _summary(row: dict[str, str]) -> str:
    text = " ".join(f"{row['subject']} {row['body']}".split())
    return text if len(text) <= SUMMARY_CHARS else text[: SUMMARY_CHARS - 1] + "…"


def _read(name: str) -> str:
    return files("tickets_batch.demo").joinpath(name).read_text(encoding="utf-8")
