"""The Redis or Valkey: its version, whether it forgets or refuses what is written, and the task queue in it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError
from redis.retry import Retry

from tickets_batch.cli.doctor.check import Check
from tickets_batch.errors import SettingsError, UserError
from tickets_batch.local import valkey
from tickets_batch.local.home import Home
from tickets_batch.settings import Settings, reveal

ANSWER_SECONDS = 2.0
OLDEST = (6, 2)  # with ZADD GT, by which permits are renewed
MANY_TASKS = 1_000
FULL = 0.9  # of maxmemory


def server(settings: Settings) -> str | Check:
    """Whether it answers and keeps what it is given. Raises UserError where it does not."""
    with connected(settings) as redis:
        if redis is None:
            return "embedded, started when it is needed"
        try:
            info = {**redis.info(), **_snapshots(redis)}
        except NoPermissionError:
            words = "answers, but may not be asked about itself: allow INFO, or look yourself at maxmemory-policy"
            return Check("redis", "warning", words)
        return judged(info, is_embedded=settings.redis_url is None)


def judged(info: Mapping[str, Any], *, is_embedded: bool) -> str | Check:
    """What its INFO means. Raises UserError where the night would fail with it."""
    version = str(info.get("valkey_version") or info.get("redis_version") or "")
    name = f"{'Valkey' if info.get('valkey_version') else 'Redis'} {version}"
    if (number := _number(str(info.get("redis_version") or version))) is not None and number < OLDEST:
        raise UserError(f"{name} is too old: 6.2 is needed at least, or any Valkey")
    _require_writable(info)
    policy = str(info.get("maxmemory_policy") or "unknown")
    limit, used = int(info.get("maxmemory") or 0), int(info.get("used_memory") or 0)
    if policy != "noeviction":
        todo = "set maxmemory-policy noeviction, or permits and queued tasks vanish when the memory is full"
        if limit:
            raise UserError(f"{name} has maxmemory-policy {policy}: {todo}")
        return Check("redis", "warning", f"{name} has maxmemory-policy {policy} and, as yet, no maxmemory: {todo}")
    if limit and used > FULL * limit:
        words = f"{name} has {used / limit:.0%} of its maxmemory in use and refuses writes when it is full: raise it"
        return Check("redis", "warning", words)
    where = "embedded, running: " if is_embedded else ""
    return f"{where}{name}, noeviction, {_persistence(info)}"


def broker(settings: Settings) -> str | Check:
    """The task queue, as the scheduler sees it. Raises UserError where the broker does not answer."""
    with connected(settings) as redis:
        if redis is None:
            return "the embedded server's, started when it is needed"
    from workers.app import QUEUE, create_app
    from workers.queue import TaskQueue

    with create_app(_url(settings) or "") as app:
        waiting = len(TaskQueue(app))
    if waiting > MANY_TASKS:
        words = f"{waiting:,} tasks wait in {QUEUE}, where a few are usual: do the workers take any? They do no harm"
        return Check("broker", "warning", words)
    return f"answers, {waiting} {'task waits' if waiting == 1 else 'tasks wait'} in {QUEUE}"


@contextmanager
def connected(settings: Settings) -> Iterator["Redis | None"]:
    """The configured server, or the embedded one; None where that is not running. Raises UserError from any use."""
    url = _url(settings)
    if settings.redis_url is None:
        valkey.server_path()
        if not valkey.answers(url):
            if valkey.listens(url):
                raise UserError(
                    "the embedded server is there but does not answer: end tickets-batch up, start it again"
                )
            yield None
            return
    try:
        redis = Redis.from_url(
            url or "",
            decode_responses=True,
            socket_timeout=ANSWER_SECONDS,
            socket_connect_timeout=ANSWER_SECONDS,
            retry=Retry(NoBackoff(), 1),
        )
    except ValueError as error:
        raise SettingsError("redis_url is not a Redis URL: write redis://host:6379/0, or rediss:// for TLS") from error
    try:
        yield redis
    except AuthenticationError as error:
        raise UserError("Redis does not take the password (or wants one): mend redis_url") from error
    except (RedisError, OSError) as error:
        raise UserError(f"Redis does not answer ({type(error).__name__}): check redis_url and the server") from error
    finally:
        redis.close()


def _url(settings: Settings) -> str | None:
    return reveal(settings.redis_url) if settings.redis_url is not None else Home(settings.home).redis_url()


def _require_writable(info: Mapping[str, Any]) -> None:
    if info.get("redis_mode") == "cluster" or info.get("server_mode") == "cluster":
        raise UserError("Redis runs as a cluster, which the task queue cannot use: point redis_url at a single server")
    if info.get("role") in ("slave", "replica"):
        raise UserError("Redis is a replica, which takes no writes: point redis_url at its primary")
    if info.get("loading"):
        raise UserError("Redis is still loading its data: try again when it is done")
    if "err" in (info.get("rdb_last_bgsave_status"), info.get("aof_last_write_status")):
        raise UserError(
            "Redis could not save its data and therefore refuses writes (see stop-writes-on-bgsave-error): "
            "its log says why, mostly a full disk"
        )


def _snapshots(redis: Redis) -> Mapping[str, Any]:
    """When it saves its data, which INFO does not tell; nothing where it may not be asked."""
    try:
        return {str(key): value for key, value in redis.config_get("save").items()}
    except RedisError:
        return {}


def _persistence(info: Mapping[str, Any]) -> str:
    if info.get("aof_enabled"):
        return "keeps its data in an append-only file"
    after = "after a restart batch is at its floor for five seconds, and nothing is lost"
    if "save" not in info:
        return f"does not say whether it keeps snapshots: {after}"
    return f"{'keeps snapshots' if info['save'] else 'keeps nothing on disk'}: {after}"


def _number(version: str) -> tuple[int, int] | None:
    parts = version.split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (ValueError, IndexError):
        return None
