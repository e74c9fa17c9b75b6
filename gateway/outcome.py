"""What became of a chat request, as it is counted."""

from enum import StrEnum


class Outcome(StrEnum):
    """One of these for each request for a completion."""

    ANSWERED = "answered"
    REFUSED = "refused"  # 429: the chat's own share was in use
    DENIED = "denied"  # the gateway could not make sense of it, or it could never fit
    ENGINE_ERROR = "engine_error"  # the model server answered with an error
    UPSTREAM_FAILED = "upstream_failed"  # no answer from the model server, or one that was cut short
    CALLER_GONE = "caller_gone"
