"""Secrets by reference, and URLs that may be given as such."""

import os
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from tickets_batch.errors import SettingsError
from tickets_batch.settings.accepts import Accepts

Text = Annotated[str, Field(min_length=1)]


class Section(BaseModel):
    """A table of the file: frozen, and it knows all its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Secret(Section):
    """A secret by reference: `{ env = "NAME" }` or `{ file = "/path" }`."""

    env: Annotated[str, Field(min_length=1)] | None = None
    file: Path | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ValueError('give exactly one of { env = "NAME" } and { file = "/path" }')
        return self

    def reveal(self) -> str:
        """The secret itself. Raises SettingsError when the variable or the file is missing."""
        if self.env is not None:
            value = os.environ.get(self.env)
            if not value:
                raise SettingsError(
                    f"the environment variable {self.env} is not set: export it, or change the reference"
                )
            return value
        assert self.file is not None  # noqa: S101 - the validator above says so
        try:
            return self.file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise SettingsError(f"cannot read the secret in {self.file}: {why}") from error


def _kind(value: Any) -> str:
    return "<reference>" if isinstance(value, dict | Secret) else "<text>"


URL_OR_REFERENCE = 'write a URL as text, or { env = "NAME" } or { file = "/path" } that holds the whole URL'

Url = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[Secret, Tag("<reference>")],
    Discriminator(_kind),
]
ServiceUrl = Annotated[Url | None, Accepts(URL_OR_REFERENCE)]


def reveal(value: str | Secret) -> str:
    """A text given plainly, or the secret that it refers to."""
    return value.reveal() if isinstance(value, Secret) else value


def holds_password(url: object) -> bool:
    """True for a URL with a password in it, before the host or among the query's parameters."""
    if not isinstance(url, str) or "://" not in url:
        return False
    try:
        parts = urlsplit(url)
    except ValueError:
        return "@" in url
    return bool(parts.password) or not {"password", "passwd"}.isdisjoint(parse_qs(parts.query))
