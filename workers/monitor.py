"""The Celery application for a monitor such as Flower: `celery -A workers.monitor flower`.

It is for looking on. Its broker is the Redis of the settings, or the Valkey server that runs under `home`.
"""

from celery import Celery

from tickets_batch.errors import UserError
from tickets_batch.local.home import Home
from tickets_batch.settings import load, reveal
from workers.app import create_app


def monitored() -> Celery:
    """The application on the broker in use. Raises SettingsError, and UserError where nothing runs."""
    settings = load()
    if settings.redis_url is not None:
        return create_app(reveal(settings.redis_url))
    url = Home(settings.home).redis_url()
    if url is None:
        raise UserError(f"nothing to look at under {settings.home}: start tickets-batch up, or set redis_url")
    return create_app(url)


try:
    app = monitored()
except UserError as error:
    raise SystemExit(f"tickets-batch: {error}") from None
