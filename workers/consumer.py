"""The part of Celery that takes messages from the queue, so that no message can end it."""

import logging
from collections.abc import Callable
from typing import Any

from celery.worker import consumer

log = logging.getLogger(__name__)


class Consumer(consumer.Consumer):
    """Drops a message that Celery fails over.

    Celery would end there, and get the same message again when it begins anew, for ever.
    """

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], None]:
        """What every message goes to."""
        handle: Callable[[Any], None] = super().create_task_handler(*args, **kwargs)  # type: ignore[no-untyped-call]

        def take(message: Any) -> None:
            try:
                handle(message)
            except self.connection_errors:
                raise
            except Exception as error:
                log.error("a message was dropped, it is none of ours (%s)", type(error).__name__)
                if not message.acknowledged:
                    message.reject_log_error(log, self.connection_errors)

        return take
