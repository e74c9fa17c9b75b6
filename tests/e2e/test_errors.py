"""What is wrong at the start: one clear line within seconds, a non-zero exit code, and nothing half made."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import Command
from tests.support.databases import PostgreSQL
from tests.support.night import Night
from tests.support.valkey import ValkeyServer

NOBODY = "http://127.0.0.1:9/v1"  # nothing listens on the discard port
CLOSED_REDIS = "redis://127.0.0.1:9/0"
CLOSED_DATABASE = "postgresql+psycopg://sorter:sesame@127.0.0.1:9/tickets"
WITHIN_SECONDS = 15.0  # seconds, where a test machine does ten things at a time
LIMITED = ("sh", "-c", 'ulimit -f "$0"; exec "$@"')  # files of at most so many blocks of 512 bytes
SUBMIT = ("submit", "--all")


@pytest.fixture
def prepared(night: Night) -> Night:
    """A night with three tickets, and nothing but its settings to be found wrong."""
    night.configure(NOBODY)
    night.tickets(["Where is my parcel?", "Twice charged", "Cannot log in"])
    return night


@pytest.fixture
def guarded_valkey(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A server that asks for a password."""
    server = ValkeyServer(tmp_path)
    server.start()
    with server.client() as client:
        client.config_set("requirepass", "open-sesame")
    yield server
    server.kill()


@pytest.fixture
def guarded_database(postgresql: PostgreSQL, postgresql_url: str) -> Iterator[str]:
    """The URL of a database on a server that asks this one role for a password; the URL's is wrong."""
    postgresql.run("CREATE ROLE guarded LOGIN PASSWORD 'open-sesame'")
    (rules,) = postgresql.rows("SHOW hba_file")
    before = Path(rules).read_text()
    Path(rules).write_text("local all guarded scram-sha-256\n" + before)
    postgresql.run("SELECT pg_reload_conf()")
    yield postgresql_url.replace("postgres@", "guarded:abracadabra@")
    Path(rules).write_text(before)
    postgresql.run("SELECT pg_reload_conf()")
    postgresql.run("DROP ROLE guarded")


def refused(night: Night, *arguments: str, code: int = 1, prefix: tuple[str, ...] = ()) -> str:
    """The one line that a command ends with, in seconds."""
    started = time.monotonic()
    command = night.run(*arguments, code=code, timeout_seconds=WITHIN_SECONDS + 10, prefix=prefix)
    assert time.monotonic() - started < WITHIN_SECONDS
    assert command.out == ""
    return the_line_of(command)


def the_line_of(command: Command) -> str:
    """What a command says beside its log lines; it must be one line, for a person."""
    said = [line for line in command.talk if not re.match(r"\d{4}-\d\d-\d\dT\S+Z (INFO|WARNING) ", line)]
    assert len(said) == 1, command.err
    assert said[0].startswith("tickets-batch: ")
    return said[0].removeprefix("tickets-batch: ")


def has_no_batch(night: Night) -> bool:
    """True when the database, as far as there is one, holds no batch, not even one in the making."""
    return night.batch() is None


class TestServicesThatAreAway:
    @pytest.mark.parametrize(
        "arguments",
        [
            (*SUBMIT, "--wait"),
            ("scheduler",),
            ("worker", "--processes", "1"),
            ("worker", "--processes", "2"),
            ("up",),
        ],
        ids=" ".join,
    )
    def test_redis_is_away(self, prepared: Night, arguments: tuple[str, ...]) -> None:
        prepared.configure(NOBODY, redis_url=CLOSED_REDIS)
        assert "Redis does not answer" in (line := refused(prepared, *arguments))
        assert "redis_url" in line
        assert has_no_batch(prepared)
        assert prepared.processes() == []

    def test_the_password_of_redis_is_wrong(self, prepared: Night, guarded_valkey: ValkeyServer) -> None:
        url = guarded_valkey.url.replace("127.0.0.1", ":abracadabra@127.0.0.1")
        prepared.configure(NOBODY, redis_url=url)
        line = refused(prepared, *SUBMIT, "--wait")
        assert "Authentication" in line
        assert "redis_url" in line
        assert "abracadabra" not in line
        assert has_no_batch(prepared)

    def test_the_url_of_redis_is_none(self, prepared: Night) -> None:
        prepared.configure(NOBODY, redis_url="http://redis:6379")
        line = refused(prepared, *SUBMIT, "--wait", code=2)
        assert line.startswith("redis_url")
        assert "redis://" in line
        assert has_no_batch(prepared)

    @pytest.mark.parametrize(
        "arguments",
        [(*SUBMIT, "--wait"), ("worker",), ("up",)],
        ids=" ".join,
    )
    def test_the_database_is_away(self, prepared: Night, arguments: tuple[str, ...]) -> None:
        prepared.configure(NOBODY, database_url=CLOSED_DATABASE)
        line = refused(prepared, *arguments)
        assert line.startswith("cannot use the database postgresql+psycopg://sorter:***@127.0.0.1:9/tickets: ")
        assert "Connection refused" in line
        assert prepared.processes() == []

    def test_the_password_of_the_database_is_wrong(self, prepared: Night, guarded_database: str) -> None:
        prepared.configure(NOBODY, database_url=guarded_database)
        line = refused(prepared, *SUBMIT, "--wait")
        assert 'password authentication failed for user "guarded"' in line
        assert "abracadabra" not in line

    def test_the_database_is_no_database(self, prepared: Night) -> None:
        prepared.home.mkdir()
        (prepared.home / "tickets-batch.db").write_text("Dear diary, " * 500)
        assert "file is not a database" in refused(prepared, *SUBMIT, "--wait")

    def test_the_tables_are_not_made(self, prepared: Night) -> None:
        prepared.configure(NOBODY, database_url=f"sqlite:///{prepared.folder}/own.db")
        assert refused(prepared, *SUBMIT) == "the database has no tables yet: run tickets-batch db upgrade"


class TestSettingsAndSources:
    @pytest.mark.parametrize(
        ("more", "parts"),
        [
            ('timezon = "UTC"\n', ("timezon is not a setting", '"timezone"')),
            ('deadline = "25:00"\n', ("deadline", "25:00", "HH:MM")),
            ("a = = b\n", ("is not valid TOML",)),
        ],
        ids=["an unknown key", "a wrong value", "no TOML"],
    )
    def test_a_setting_is_wrong(self, prepared: Night, more: str, parts: tuple[str, ...]) -> None:
        prepared.configure(NOBODY, more=more)
        line = refused(prepared, *SUBMIT, "--wait", code=2)
        assert line.startswith("tickets-batch.toml")
        assert all(part in line for part in parts), line
        assert not prepared.home.exists()

    def test_the_source_is_missing(self, prepared: Night) -> None:
        (prepared.folder / "tickets.csv").unlink()
        assert refused(prepared, *SUBMIT, "--wait").startswith("tickets.csv does not exist")
        assert has_no_batch(prepared)

    def test_only_debug_shows_where(self, prepared: Night) -> None:
        (prepared.folder / "tickets.csv").unlink()
        shown = prepared.run(*SUBMIT, "--debug", code=1)
        assert shown.talk[0] == "Traceback (most recent call last):"
        assert shown.talk[-1].startswith("tickets-batch: tickets.csv does not exist")


class TestFullDisks:
    @pytest.fixture
    def saved(self, prepared: Night) -> Night:
        """A batch whose results take more than 51,200 bytes as JSON lines."""
        prepared.tickets(f"Where is parcel {number}?" for number in range(1000))
        assert "is saved, but nothing is running" in prepared.run(*SUBMIT, code=1).talk[-1]
        return prepared

    def test_the_results_file_and_the_old_one_stays(self, saved: Night) -> None:
        results = saved.folder / "results.jsonl"
        results.write_text("of yesterday\n")
        line = refused(saved, "results", "latest", "-o", str(results), prefix=(*LIMITED, "100"))
        assert line.startswith(f"cannot write the results to {results}: ")
        assert "still in the database" in line
        assert results.read_text() == "of yesterday\n"
        assert [path.name for path in saved.folder.glob(".*")] == []
        saved.run("results", "latest", "-o", str(results), code=0)
        assert len(results.read_text().splitlines()) == 1000

    @pytest.mark.parametrize("count", [3, 1000], ids=["less than a buffer", "more than a buffer"])
    def test_stdout(self, prepared: Night, count: int) -> None:
        prepared.tickets(f"Where is parcel {number}?" for number in range(count))
        prepared.run(*SUBMIT, code=1)
        ended = prepared.run("results", "latest", stdout=Path("/dev/full"), code=1)
        assert the_line_of(ended).startswith("cannot write the results to the output: No space left on device")

    def test_the_database_cannot_grow_and_the_batch_is_not_half_made(self, saved: Night) -> None:
        grown = (saved.home / "tickets-batch.db").stat().st_size // 512
        saved.tickets((f"{number} " * 200 for number in range(2000)), "more.csv")
        line = refused(saved, *SUBMIT, "--input", "more.csv", prefix=(*LIMITED, str(grown + 500)))
        assert line.startswith("cannot use the database ")
        shown = saved.json("status")["data"]
        assert [batch["request_counts"]["total"] for batch in shown] == [1000]
        again = saved.json(*SUBMIT, "--input", "more.csv", code=1)
        assert again["request_counts"]["total"] == 2000
