"""TLS and passwords towards Redis, the database and the model, with a certificate that is trusted and without."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.store.database import Database
from jobs.store.errors import StoreUnavailable
from scheduler.dispatch import QueueUnavailable, Task
from scheduler.ledger import LedgerUnavailable
from scheduler.snapshot import Snapshot
from tests.hostile.terminator import terminator
from tests.support.canned import CERTIFICATE, CannedServer, whole
from tests.support.databases import PostgreSQL
from tests.support.gateways import chat_settings, fetch, ledger_of, running
from tests.support.store import submit
from tests.support.valkey import ValkeyServer
from workers.app import create_app
from workers.queue import TaskQueue

pytestmark = pytest.mark.long

PASSWORD = "open-sesame-31415926"
TRUSTED = f"?ssl_ca_certs={CERTIFICATE}"


@pytest.fixture
def redis_port(tmp_path: Path) -> Iterator[int]:
    """A server behind TLS that asks for a password."""
    server = ValkeyServer(tmp_path)
    server.start()
    with server.client() as client:
        client.config_set("requirepass", PASSWORD)
    with terminator(lambda: asyncio.open_connection("127.0.0.1", server.port)) as port:
        yield port
    server.kill()


def snapshot_at(redis_url: str) -> Snapshot:
    async def read() -> Snapshot:
        async with ledger_of(chat_settings(redis_url, "http://127.0.0.1:9/v1")) as ledger:
            return await ledger.snapshot()

    return asyncio.run(read())


def publish(redis_url: str) -> int:
    with create_app(redis_url) as app:
        queue = TaskQueue(app)
        queue.publish(Task("batch_1", 4, 1.0))
        return len(queue)


class TestRedis:
    def test_with_a_trusted_certificate_and_the_password(self, redis_port: int) -> None:
        url = f"rediss://:{PASSWORD}@localhost:{redis_port}/0{TRUSTED}"
        assert snapshot_at(url).refused == 0
        assert publish(url) == 1

    @pytest.mark.parametrize(
        "url",
        [
            f"rediss://:{PASSWORD}@localhost:PORT/0",
            f"rediss://:wrong-password-1@localhost:PORT/0{TRUSTED}",
            f"rediss://localhost:PORT/0{TRUSTED}",
            f"redis://:{PASSWORD}@localhost:PORT/0",
        ],
        ids=["nobody vouches for it", "wrong password", "no password", "no TLS"],
    )
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # sockets of failed handshakes
    def test_with_less_it_is_one_line_without_the_password(self, url: str, redis_port: int) -> None:
        url = url.replace("PORT", str(redis_port))
        for use, error in ((snapshot_at, LedgerUnavailable), (publish, QueueUnavailable)):
            with pytest.raises(error) as refused:
                use(url)
            assert "\n" not in str(refused.value)
            assert PASSWORD not in str(refused.value)
            assert "wrong-password" not in str(refused.value)


class TestDatabase:
    @pytest.fixture
    def behind(self, postgresql: PostgreSQL, postgresql_url: str) -> Iterator[str]:
        """The same database behind TLS, without its options."""
        socket = postgresql_url.partition("host=")[2] + "/.s.PGSQL.5432"
        with terminator(lambda: asyncio.open_unix_connection(socket), asks_first=True) as port:
            yield postgresql_url.partition("?")[0].replace("@/", f"@localhost:{port}/")

    def test_with_a_trusted_certificate(self, behind: str) -> None:
        db = Database.open(f"{behind}?sslmode=verify-full&sslrootcert={CERTIFICATE}")
        assert submit(db, 3).batch_id
        db.dispose()

    def test_one_that_nobody_vouches_for_is_refused(self, behind: str, tmp_path: Path) -> None:
        (tmp_path / "other.pem").write_text("")
        with pytest.raises(StoreUnavailable) as refused:
            submit(Database.open(f"{behind}?sslmode=verify-full&sslrootcert={tmp_path}/other.pem"), 3)
        assert "\n" not in str(refused.value)


class TestGateway:
    def through(self, redis_url: str) -> tuple[int, bytes]:
        def ask(base_url: str) -> tuple[int, bytes]:
            body = json.dumps({"messages": [], "max_tokens": 4}).encode()
            with running(chat_settings(redis_url, base_url)) as door:
                return fetch(door, "POST", "/v1/chat/completions", body)

        async def scene() -> tuple[int, bytes]:
            async with CannedServer(whole(200, b"{}"), encrypted=True) as server:
                return await asyncio.to_thread(ask, server.base_url)

        return asyncio.run(scene())

    def test_with_a_trusted_certificate(self, valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        assert self.through(valkey.url) == (200, b"{}")

    def test_one_that_nobody_vouches_for_is_refused(self, valkey: ValkeyServer) -> None:
        status, body = self.through(valkey.url)
        assert (status, json.loads(body)["error"]["code"]) == (502, "upstream_unreachable")
