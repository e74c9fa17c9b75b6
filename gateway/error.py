"""What a caller is told in place of an answer, in the shape in which OpenAI clients read errors."""

import math
import random
from collections.abc import Mapping

from gateway.outcome import Outcome

RETRY_AFTER_SECONDS = (0.5, 2.5)  # spread out, so that who was refused together does not come back together


class Denied(Exception):
    """The request is answered by the gateway itself, with an error; the message is one line for the caller."""

    def __init__(
        self, status: int, kind: str, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.code = code
        self.headers = headers

    @property
    def outcome(self) -> Outcome:
        """What the request counts as."""
        if self.status >= 500:
            return Outcome.UPSTREAM_FAILED
        return Outcome.REFUSED if self.status == 429 else Outcome.DENIED

    @property
    def body(self) -> dict[str, object]:
        """What the caller reads."""
        return {"error": {"message": str(self), "type": self.kind, "param": None, "code": self.code}}


def bad_request(message: str, code: str = "invalid_request") -> Denied:
    """The request cannot be read, or could never be served."""
    return Denied(400, "invalid_request_error", code, message)


def too_busy(retry_after_seconds: float | None = None) -> Denied:
    """The chat's own share of the model is in use: come again after a jittered while."""
    seconds = retry_after(retry_after_seconds)
    headers = {"retry-after": str(math.ceil(seconds)), "retry-after-ms": str(round(seconds * 1000))}
    message = "the model is busy with other chat requests: try again after the time in Retry-After"
    return Denied(429, "rate_limit_error", "rate_limit_exceeded", message, headers)


def server_error() -> Denied:
    """A fault of our own."""
    return Denied(500, "server_error", "internal_error", "the gateway failed: its log says why")


def retry_after(at_least_seconds: float | None = None) -> float:
    """When to come again, in seconds, at random."""
    return (at_least_seconds or 0.0) + random.uniform(*RETRY_AFTER_SECONDS)  # noqa: S311
