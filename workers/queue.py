"""The task queue as the scheduler sees it: how long it is, and one more message."""

from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError

from scheduler.dispatch import QueueUnavailable, Task
from workers.app import QUEUE, TASK


class TaskQueue:
    """Publishes tasks to Celery. Raises QueueUnavailable when the broker does not answer in seconds."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        with app.connection_for_write() as connection:  # nothing is connected yet
            # Not every error of the transport comes as one of kombu's own.
            self._away = (OperationalError, *connection.connection_errors, *connection.channel_errors)

    def __len__(self) -> int:
        try:
            with self._app.connection_for_write() as connection:
                declared: Any = connection.default_channel.queue_declare(QUEUE, durable=True)
                return int(declared.message_count)
        except self._away as error:
            raise QueueUnavailable(_why(error)) from error

    def publish(self, task: Task) -> None:
        """Queue one task; it carries no ticket and no job."""
        try:
            self._app.send_task(TASK, kwargs=task.arguments(), queue=QUEUE, ignore_result=True)
        except self._away as error:
            raise QueueUnavailable(_why(error)) from error


def _why(error: Exception) -> str:
    return f"the broker does not answer ({type(error).__name__}): check redis_url and the server"
