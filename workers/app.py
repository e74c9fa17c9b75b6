"""The Celery application: transport for tasks, worker processes, events for Flower.

SQL is the truth and the queue a hint, so nothing here may be needed for correctness: no result backend, no retries, no
countdowns, tasks acknowledged when they begin.
"""

import ssl
from typing import Any

from celery import Celery

QUEUE = "tickets-batch"
KEY_PREFIX = "tickets-batch:celery:"
TASK = "tickets_batch.work_on"
TASK_SECONDS = 30.0  # how long one task drives a batch

_TRANSPORT: dict[str, Any] = {
    # With the transport's defaults a half-open connection is never noticed.
    "socket_timeout": 10.0,
    "socket_connect_timeout": 3.0,
    "socket_keepalive": True,
    "health_check_interval": 10,
    "retry_on_timeout": True,
    # Acknowledged when they begin, messages are unacknowledged for moments only; these bound what a death leaves.
    "visibility_timeout": 4 * TASK_SECONDS,
    "unacked_restore_interval": 10,
    "unacked_restore_throttle": 10,
    "global_keyprefix": KEY_PREFIX,
}


def create_app(redis_url: str) -> Celery:
    """The application on this broker; nothing is connected yet."""
    app = Celery("tickets-batch", broker=redis_url, set_as_current=False, autofinalize=True)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_default_queue=QUEUE,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        task_acks_late=False,
        worker_consumer="workers.consumer:Consumer",
        worker_prefetch_multiplier=1,
        worker_send_task_events=True,
        task_send_sent_event=True,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_channel_error_retry=True,  # a broker that takes no writes (its disk is full) is away, and comes back
        broker_connection_timeout=3.0,
        broker_transport_options=_TRANSPORT,
        task_publish_retry=False,
    )
    if redis_url.startswith("rediss:"):
        # Without this the transport takes whatever certificate it is shown, and gives the password to anybody.
        # What the URL says of it stands over this as a whole, over the Redis client's own defaults, which are the same.
        app.conf.broker_use_ssl = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True}
    return app
