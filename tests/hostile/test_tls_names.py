"""A server with a trusted certificate of another host's: it is told nothing, and the refusal is a clear line."""

import asyncio
import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from jobs.outcomes import Symptom
from jobs.store.database import Database
from jobs.store.errors import StoreUnavailable
from scheduler.dispatch import QueueUnavailable
from scheduler.ledger import LedgerUnavailable
from tests.hostile.terminator import terminator
from tests.hostile.test_tls import PASSWORD, publish, snapshot_at
from tests.support.calls import attempt_at
from tests.support.canned import CERTIFICATE, OF_ANOTHER_HOST, CannedServer, whole
from tests.support.databases import PostgreSQL
from tests.support.gateways import chat_settings, fetch, running
from tests.support.in_process import Here, directory
from tests.support.store import submit
from tests.support.valkey import ValkeyServer

pytestmark = pytest.mark.long

ROLE = "guarded"
MISMATCH = re.compile(r"not (valid|match)|mismatch", re.IGNORECASE)


class Elsewhere(NamedTuple):
    """The port of a server that has the wrong name, and what it was told."""

    port: int
    heard: bytearray


@pytest.fixture
def redis_elsewhere(valkey: ValkeyServer) -> Iterator[Elsewhere]:
    heard = bytearray()
    with terminator(
        lambda: asyncio.open_connection("127.0.0.1", valkey.port), certificate=OF_ANOTHER_HOST, heard=heard
    ) as port:
        yield Elsewhere(port, heard)


@pytest.fixture
def guarded(postgresql: PostgreSQL, postgresql_url: str) -> Iterator[str]:
    """The path of a database whose role must show its password, however it comes."""
    name = f"{ROLE}_{uuid.uuid4().hex[:8]}"
    (rules,) = map(Path, postgresql.rows("SHOW hba_file"))
    before = rules.read_text()
    database = postgresql_url.partition("?")[0].rpartition("/")[2]
    postgresql.run(f"CREATE ROLE {name} LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
    rules.write_text(f"local all {name} scram-sha-256\n{before}")
    postgresql.run("SELECT pg_reload_conf()")
    yield f"{name}:{PASSWORD}@localhost:PORT/{database}?sslmode=verify-full"
    rules.write_text(before)
    postgresql.run("SELECT pg_reload_conf()")
    postgresql.run(f"DROP ROLE {name}")


@pytest.fixture
def database_elsewhere(postgresql: PostgreSQL) -> Iterator[Elsewhere]:
    heard = bytearray()
    with terminator(
        lambda: asyncio.open_unix_connection(postgresql.socket_file),
        asks_first=True,
        certificate=OF_ANOTHER_HOST,
        heard=heard,
    ) as port:
        yield Elsewhere(port, heard)


def said(refused: pytest.ExceptionInfo[Exception]) -> str:
    line = str(refused.value)
    assert "\n" not in line
    assert PASSWORD not in line
    return line


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # sockets of failed handshakes
def test_redis(redis_elsewhere: Elsewhere) -> None:
    url = f"rediss://:{PASSWORD}@localhost:{redis_elsewhere.port}/0?ssl_ca_certs={OF_ANOTHER_HOST}"
    for use, error in ((snapshot_at, LedgerUnavailable), (publish, QueueUnavailable)):
        with pytest.raises(error) as refused:
            use(url)
        assert said(refused)
    assert not redis_elsewhere.heard


class TestDatabase:
    def test_a_password_over_tls(self, postgresql: PostgreSQL, guarded: str) -> None:
        with terminator(lambda: asyncio.open_unix_connection(postgresql.socket_file), asks_first=True) as port:
            url = f"postgresql+psycopg://{guarded.replace('PORT', str(port))}&sslrootcert={CERTIFICATE}"
            db = Database.open(url)
            assert submit(db, 3).batch_id
            db.dispose()
            with pytest.raises(StoreUnavailable) as refused:
                submit(Database.open(url.replace(PASSWORD, "not-the-password")), 3)
        assert "not-the-password" not in said(refused)

    def test_of_another_host(self, database_elsewhere: Elsewhere, guarded: str) -> None:
        url = f"postgresql+psycopg://{guarded.replace('PORT', str(database_elsewhere.port))}"
        with pytest.raises(StoreUnavailable) as refused:
            submit(Database.open(f"{url}&sslrootcert={OF_ANOTHER_HOST}"), 3)
        assert MISMATCH.search(said(refused))
        assert not database_elsewhere.heard


@pytest.fixture
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(OF_ANOTHER_HOST))


@pytest.mark.usefixtures("trusting")
class TestModel:
    def test_a_worker(self) -> None:
        async def scene() -> None:
            async with CannedServer(whole(200, b"{}"), encrypted=True, certificate=OF_ANOTHER_HOST) as server:
                attempt = await asyncio.to_thread(attempt_at, server.base_url)
                assert attempt.symptom is Symptom.UNREACHABLE
                assert MISMATCH.search(attempt.detail)
                assert not server.requests

        asyncio.run(scene())

    def test_the_gateway(self, valkey: ValkeyServer) -> None:
        def ask(base_url: str) -> tuple[int, bytes]:
            with running(chat_settings(valkey.url, base_url)) as door:
                return fetch(door, "POST", "/v1/chat/completions", b'{"messages": [], "max_tokens": 4}')

        async def scene() -> None:
            async with CannedServer(whole(200, b"{}"), encrypted=True, certificate=OF_ANOTHER_HOST) as server:
                status, body = await asyncio.to_thread(ask, server.base_url)
                assert (status, json.loads(body)["error"]["code"]) == (502, "upstream_unreachable")
                assert not server.requests

        asyncio.run(scene())


def test_the_command_says_so_in_a_line_and_ends_with_1(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    database_elsewhere: Elsewhere,
    guarded: str,
) -> None:
    monkeypatch.setenv(
        "DATABASE",
        f"postgresql+psycopg://{guarded.replace('PORT', str(database_elsewhere.port))}&sslrootcert={OF_ANOTHER_HOST}",
    )
    with directory(tmp_path, monkeypatch, 'database_url = { env = "DATABASE" }\n'):
        here = Here(capsys)
        here("status", code=1)
    assert here.out == ""
    assert here.err.count("\n") == 1
    assert MISMATCH.search(here.err)
    assert PASSWORD not in here.err
    assert not database_elsewhere.heard
