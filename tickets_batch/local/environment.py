"""What a child finds in its environment: the settings as it needs them, and no secret that it does not read."""

import os
from collections.abc import Collection, Iterator

from tickets_batch.settings import Secret, Settings, to_environment
from tickets_batch.settings.model import PREFIX

EVERY_SERVICE = ("gateway", "scheduler", "worker")
# Tables that only the command reads, or only some services; a URL with a password may stand in them as text.
READERS = {
    "source": (),
    "sink": (),
    "database_url": ("scheduler", "worker"),
    "alert": ("scheduler",),
}
OF_A_STRANGER = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "MALLOC_ARENA_MAX")


def child_environment(settings: Settings, service: str | None = None) -> dict[str, str]:
    """Our environment for a child, with these settings in place of whatever ours says about them.

    With the name of a service it is without the secrets, and the tables, that others alone read.
    """
    rest = {name: value for name, value in os.environ.items() if not name.upper().startswith(PREFIX)}
    variables = {**rest, **to_environment(settings)}
    if service is None:
        return variables
    left_out = {PREFIX + table.upper() for table, readers in READERS.items() if service not in readers}
    needed: set[str] = set()
    others: set[str] = set()
    for secret, readers in _secrets(settings):
        if isinstance(secret, Secret) and secret.env is not None:
            (needed if service in readers else others).add(secret.env)
    return {name: value for name, value in variables.items() if name not in left_out | (others - needed)}


def stranger_environment() -> dict[str, str]:
    """The environment of a program that is none of ours, and needs nothing of what we were told."""
    return {name: os.environ[name] for name in OF_A_STRANGER if name in os.environ}


def _secrets(settings: Settings) -> Iterator[tuple[object, Collection[str]]]:
    """Everything that may be a secret by reference, with the services that read it."""
    yield settings.redis_url, EVERY_SERVICE
    yield settings.database_url, READERS["database_url"]
    yield settings.source.url, READERS["source"]
    yield settings.sink.url if settings.sink else None, READERS["sink"]
    yield settings.alert.webhook, READERS["alert"]
    yield settings.gateway.keys, ("gateway",)
    for pool in settings.pool:
        yield pool.api_key, EVERY_SERVICE
        for signal in pool.signal:
            yield getattr(signal, "authorization", None), ("scheduler",)
