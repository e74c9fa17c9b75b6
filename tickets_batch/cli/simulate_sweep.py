"""One setting of a pool at several values: `--sweep protected.batch.slots=1,2,4`."""

from collections.abc import Iterator

from pydantic import ValidationError

from tickets_batch.errors import SettingsError
from tickets_batch.settings import Pool
from tickets_batch.settings.explain import nearest

KEYS = (
    "capacity.slots",
    "capacity.tokens",
    "protected.interactive.slots",
    "protected.interactive.tokens",
    "protected.batch.slots",
    "protected.batch.tokens",
    "ttft_target_seconds",
    "shared_hours",
)
ALWAYS = "always"  # no hours: the shared part is open all day


def swept(pool: Pool, asked: str) -> tuple[str, list[tuple[str, Pool]]]:
    """The key, and the pool with each of its values. Raises SettingsError."""
    key, separator, values = asked.partition("=")
    if key not in KEYS:
        raise SettingsError(f"--sweep {key}: the simulation heeds no such setting of a pool{nearest(key, KEYS)}")
    texts = [text.strip() for text in values.split(",")]
    if not separator or not all(texts):
        raise SettingsError(f"--sweep {asked}: write a key and its values, as in protected.batch.slots=1,2,4")
    return key, list(_pools(pool, key, texts))


def _pools(pool: Pool, key: str, texts: list[str]) -> Iterator[tuple[str, Pool]]:
    for text in texts:
        value: object = text
        if key == "shared_hours":
            value = None if text == ALWAYS else (text,)
        try:
            yield text, Pool.model_validate(_changed(pool, key, value))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            problem = first["msg"].removeprefix("Value error, ")
            raise SettingsError(f"--sweep {key}={text}: {problem[:1].lower()}{problem[1:]}") from None


def _changed(pool: Pool, key: str, value: object) -> dict[str, object]:
    """The fields of the pool, those of the tables on the way to the key as plain values."""
    fields: dict[str, object] = {name: getattr(pool, name) for name in Pool.model_fields}
    table, *inner = key.split(".")
    if not inner:
        return fields | {table: value}
    fields[table] = tree = getattr(pool, table).model_dump()
    for part in inner[:-1]:
        tree = tree[part]
    tree[inner[-1]] = value
    return fields
