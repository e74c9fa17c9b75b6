"""A connection to PostgreSQL that leads nowhere while its packets are acknowledged: a proxy in between hangs."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial

import pytest
from sqlalchemy import func, make_url, select, text

from jobs.store import database, schema, silence
from jobs.store.database import Database
from jobs.store.errors import StoreUnavailable
from tests.chaos.links import Links
from tests.support.databases import PostgreSQL

WAY = "worker-1 - database"
SILENCE_SECONDS = 0.5


@pytest.fixture
def links() -> Iterator[Links]:
    with Links() as made:
        yield made


@pytest.fixture
def behind_a_proxy(
    postgresql: PostgreSQL, postgresql_url: str, links: Links, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Database]:
    """A database by a way that can be half-opened."""
    monkeypatch.setattr(silence, "SILENCE_SECONDS", SILENCE_SECONDS)
    monkeypatch.setattr(database, "PING_SECONDS", SILENCE_SECONDS)
    port = links.to_socket(WAY, postgresql.socket_file)
    db = Database.open(f"postgresql+psycopg://postgres@127.0.0.1:{port}/{make_url(postgresql_url).database}")
    yield db
    db.dispose()


def ask(db: Database, query: str = "SELECT 1") -> int:
    with db.read() as connection:
        return int(connection.execute(text(query)).scalar_one())


def ask_later(db: Database, before: Callable[[], object]) -> None:
    """A statement on a connection that was good when its transaction began."""
    with db.read() as connection:
        before()
        connection.execute(text("SELECT 1"))


@pytest.mark.timeout(60)
def test_no_statement_waits_for_ever(behind_a_proxy: Database, links: Links) -> None:
    assert ask(behind_a_proxy) == 1
    links.begin("half-open", WAY)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, behind_a_proxy)  # on the connection that is kept in the pool
        assert answer.result(30) == 1  # found out before it is used, and a new one is made
    with pytest.raises(StoreUnavailable, match="no answer"):
        ask_later(behind_a_proxy, partial(links.begin, "half-open", WAY))
    assert ask(behind_a_proxy) == 1


@pytest.mark.timeout(60)
def test_a_kept_connection_is_found_dead_by_its_ping(
    behind_a_proxy: Database, links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "SILENCE_SECONDS", 600.0)
    with behind_a_proxy.read(), behind_a_proxy.read():  # two of them are kept
        pass
    links.begin("half-open", WAY)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(ask, behind_a_proxy).result(30) == 1
    assert ask(behind_a_proxy, f"SELECT 1 FROM pg_sleep({SILENCE_SECONDS * 2})") == 1  # that bound is for pings alone


def test_a_statement_that_takes_long_is_not_silence_before_its_time(behind_a_proxy: Database) -> None:
    assert ask(behind_a_proxy, f"SELECT 1 FROM pg_sleep({SILENCE_SECONDS / 2})") == 1
    with pytest.raises(StoreUnavailable, match="no answer"):
        ask(behind_a_proxy, f"SELECT 1 FROM pg_sleep({SILENCE_SECONDS * 20})")


def test_an_upgrade_of_the_tables_may_take_as_long_as_it_takes(behind_a_proxy: Database) -> None:
    url = behind_a_proxy.url.render_as_string(hide_password=False)
    with behind_a_proxy.begin() as other, ThreadPoolExecutor(1) as pool:
        other.execute(select(func.pg_advisory_xact_lock(schema.LOCK_KEY)))  # another's upgrade
        upgrade = pool.submit(schema.upgrade, url)
        with pytest.raises(FutureTimeout):
            upgrade.result(4 * SILENCE_SECONDS)  # it waits, and says nothing
        other.commit()
        upgrade.result(30)
    assert schema.is_current(behind_a_proxy)
