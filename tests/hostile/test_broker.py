"""Messages on the broker that the scheduler has not sent: forged, replayed, broken. None runs, and none does harm.

One worker takes them all, and after each an honest task, which must be looked at.
"""

import itertools
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis

from scheduler.dispatch import Task
from tests.engine.process import EngineProcess
from tests.support.command import Command
from tests.support.night import Night
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until
from workers.app import KEY_PREFIX, QUEUE, TASK, create_app
from workers.queue import TaskQueue

pytestmark = pytest.mark.long

TICKETS = 12
SECRET_TEXT = "my card is 4711 0815"  # in every ticket
RUN = Path("was-run")


class Bomb:
    """Leaves a file behind where it is unpacked."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (RUN.absolute(),))


class Forged(NamedTuple):
    name: str
    body: Any = ((), {}, {})
    task: str = TASK
    options: dict[str, Any] = {}  # noqa: RUF012 - never changed


def right(*args: object, **kwargs: object) -> Any:
    return (args, kwargs, {"callbacks": None, "errbacks": None, "chain": None, "chord": None})


FORGED = [
    Forged("pickle", right(Bomb(), 4, 1.0), options={"serializer": "pickle"}),
    Forged("pickle that says JSON", pickle.dumps(Bomb()),
           options={"content_type": "application/json", "content_encoding": "binary"}),
    Forged("another kind", b"\x93\x01\x02",
           options={"content_type": "application/x-msgpack", "content_encoding": "binary"}),
    Forged("YAML", b"!!python/object/apply:os.system ['id']",
           options={"content_type": "application/x-yaml", "content_encoding": "utf-8"}),
    Forged("a kind that nobody knows", b"x", options={"content_type": "evil/evil", "content_encoding": "utf-8"}),
    Forged("no JSON", b"{", options={"content_type": "application/json", "content_encoding": "utf-8"}),
    Forged("another task", right("x"), "os.system"),
    Forged("a task of Celery", right([]), "celery.backend_cleanup"),
    Forged("a chain that calls others", ((), {}, {"chain": [{"task": "os.system", "args": ["id"]}]})),
    Forged("no arguments", right()),
    Forged("too many arguments", right("a", 1, 1.0, "b")),
    Forged("unknown arguments", right(batch_id="a", at_once=1, seconds=1.0, evil=True)),
    Forged("arguments of other kinds", right({"$ne": 1}, [], None)),
    Forged("batch that is a list", right(["a"], 1, 1.0)),
    Forged("batch with NUL", right("a\0b", 1, 1.0)),
    Forged("batch of SQL", right("x'; DROP TABLE jobs; --", 1, 1.0)),
    Forged("batch of a megabyte", right("x" * 1_000_000, 1, 1.0)),
    Forged("countless at once", right("batch_no", 10**30, 1.0)),
    Forged("for ever", right("batch_no", 1, 1e308)),
    Forged("not for a number of seconds", right("batch_no", 1, float("nan"))),
    Forged("before its time", right("batch_no", -5, -5.0)),
    Forged("body of another kind", "text"),
    Forged("body of numbers", [1, 2, 3, 4]),
    Forged("body of three numbers", [1, 2, 3]),
    Forged("body of nothing", b"", options={"content_type": "application/json", "content_encoding": "utf-8"}),
    Forged("a task that is a list", options={"headers": {"task": ["x"]}}),
    Forged("an id that is a table", right("batch_no", 1, 1.0), options={"headers": {"id": {"a": 1}}}),
    Forged("callbacks of words", ((), {}, {"callbacks": "abc", "errbacks": [1], "chain": 7, "chord": "x"})),
    Forged("time limits of words", right("batch_no", 1, 1.0), options={"headers": {"timelimit": "x"}}),
    Forged("time limits in a table", right("batch_no", 1, 1.0), options={"headers": {"timelimit": {"a": 1}}}),
    Forged("in a year", right("batch_no", 1, 1.0), options={"headers": {"eta": "2027-11-30T00:00:00+00:00"}}),
    Forged("long expired", right("batch_no", 1, 1.0), options={"headers": {"expires": "2001-01-01T00:00:00+00:00"}}),
    Forged("expiry of another kind", right("batch_no", 1, 1.0), options={"headers": {"expires": {"a": 1}}}),
]  # fmt: skip
RAW = {
    "no envelope": b"hello",
    "envelope of another kind": b"[1, 2]",
    "envelope without properties": json.dumps({"body": "e30="}).encode(),
    "envelope of bytes": b"\xff\xfe\0",
    "empty": b"",
}


class Place:
    """A worker at work on a broker that anybody writes to."""

    def __init__(self, night: Night, valkey: ValkeyServer, engine: EngineProcess) -> None:
        night.configure(engine.base_url, redis_url=valkey.url, processes=1)
        night.tickets(f"{SECRET_TEXT} {number}" for number in range(TICKETS))
        self.batch = night.batch_id(night.run("submit", "--all", "--json", code=1))
        self.night, self.engine = night, engine
        self.redis = valkey.client()
        self.app = create_app(valkey.url)
        self.queue = TaskQueue(self.app)
        self._numbers = itertools.count(1)
        self.worker: Command = night.start("worker", "--processes", "1")

    def log(self) -> str:
        """What the worker has said."""
        logs = sorted((self.night.home / "logs").glob("*.log")) if (self.night.home / "logs").is_dir() else []
        return self.worker.err + "".join(path.read_text(errors="replace") for path in logs)

    def still_works(self) -> None:
        """An honest task for a batch that is not there is looked at."""
        name = f"batch_probe{next(self._numbers)}"
        self.queue.publish(Task(name, 1, 1.0))
        wait_until(lambda: name in self.log(), "the next task to be looked at", 30)
        assert self.worker.code is None

    def close(self) -> None:
        self.app.close()
        self.redis.close()


@pytest.fixture(scope="module")
def place(valkey_session: ValkeyServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with valkey_session.client() as client:
        client.flushall()
    night = Night(tmp_path_factory.mktemp("broker"))
    with EngineProcess() as engine:
        made = Place(night, valkey_session, engine)
        made.still_works()
        yield made
        made.close()
        night.close()


@pytest.mark.parametrize("forged", [pytest.param(forged, id=forged.name) for forged in FORGED])
def test_a_forged_message_does_nothing(forged: Forged, place: Place) -> None:
    options = dict(forged.options)
    headers = {"task": forged.task, "id": "forged", "lang": "py", "argsrepr": "", "kwargsrepr": ""}
    headers |= options.pop("headers", {})
    calls = len(place.engine.log())
    with place.app.connection_for_write() as connection:
        kinds = {"serializer": "json"} if "content_type" not in options else {}
        connection.Producer().publish(forged.body, routing_key=QUEUE, headers=headers, **(kinds | options))
    place.still_works()
    assert not RUN.exists()
    assert len(place.engine.log()) == calls


@pytest.mark.parametrize("name", RAW)
def test_what_is_no_message_ends_nothing(name: str, place: Place) -> None:
    place.redis.lpush(KEY_PREFIX + QUEUE, RAW[name])
    place.still_works()


@pytest.mark.parametrize("kind", ["application/json", "application/x-python-serialize"])
def test_the_channel_of_commands_reads_json_alone(kind: str, place: Place, valkey_session: ValkeyServer) -> None:
    with redis.Redis(port=valkey_session.port) as client:
        envelope = {"body": "gASVAAAAAAAAAA==", "content-type": kind, "content-encoding": "binary", "headers": {},
                    "properties": {"body_encoding": "base64", "delivery_info": {}, "delivery_tag": "x"}}  # fmt: skip
        client.publish(KEY_PREFIX + "/0.celery.pidbox", json.dumps(envelope))
    place.still_works()


def test_a_forged_command_to_stop_stops_nobody_for_long(place: Place) -> None:
    place.app.control.shutdown()
    place.still_works()


def test_a_replayed_task_does_no_job_twice_and_nobody_logs_a_ticket(place: Place) -> None:
    for _ in range(20):
        place.queue.publish(Task(place.batch, 4, 5.0))

    def is_done() -> bool:
        batch = place.night.batch()
        return batch is not None and batch.succeeded == TICKETS

    wait_until(is_done, "the batch to be done", 60)
    place.still_works()
    assert len(place.engine.log()) == TICKETS
    assert len(place.night.results()) == TICKETS
    assert "4711" not in place.log()
