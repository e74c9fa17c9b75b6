"""A message from the queue as Celery reads it, whoever has put it there."""

from typing import Any

from celery.exceptions import InvalidTaskError
from celery.worker.request import Request


class Message(Request):
    """Raises InvalidTaskError where Celery would fail and take the worker with it: what is no message is dropped."""

    def __init__(self, message: Any, *args: Any, **kwargs: Any) -> None:
        try:
            super().__init__(message, *args, **kwargs)  # type: ignore[no-untyped-call]
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise InvalidTaskError(f"no message of ours ({type(error).__name__})") from error
