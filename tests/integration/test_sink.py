"""Results in a table of the user's, on both databases: what is written, what is left alone, and what is refused."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, make_url, text

from jobs.sink import Sink
from jobs.states import JobState
from jobs.store.results import ResultRow
from tests.support.databases import PostgreSQL
from tests.support.intake import refused
from tickets_batch.settings import Sink as SinkSettings

LAST_NIGHT = datetime(2026, 11, 30, 2, 3, 4, 567_000, tzinfo=UTC)
TONIGHT = LAST_NIGHT + timedelta(days=1)
ROW = ResultRow(
    custom_id="17",
    state=JobState.SUCCEEDED,
    label="billing",
    error=None,
    truncated=False,
    reused=True,
    model="qwen",
    prompt_tokens=120,
    completion_tokens=6,
    latency_seconds=0.25,
    attempts=1,
    yields=0,
    finished_at=LAST_NIGHT,
)
ALL = {name: name for name in ResultRow.__dataclass_fields__} | {"batch_id": "batch_id"}
TABLE = "CREATE TABLE labels (custom_id {id} PRIMARY KEY, state TEXT, label TEXT, error TEXT, model TEXT, {more})"


class UserTable:
    """A table of the user's in a database of its own, looked at with plain SQL."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = create_engine(url)

    def run(self, statement: str) -> None:
        with self._engine.begin() as connection:
            connection.execute(text(statement))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self._engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(query))]

    def make(self, id: str = "TEXT") -> None:
        self.run(TABLE.format(id=id, more="batch_id TEXT, finished_at TIMESTAMP, note TEXT DEFAULT 'mine'"))

    def sink(self, table: str = "labels", **more: Any) -> Sink:
        return Sink(SinkSettings(url=self.url, table=table, **more))

    def dispose(self) -> None:
        self._engine.dispose()


@pytest.fixture
def table(database_url: str) -> Iterator[UserTable]:
    found = UserTable(database_url)
    yield found
    found.dispose()


def test_each_ticket_that_has_ended_gets_a_row_however_often_it_is_written(table: UserTable) -> None:
    table.make()
    rows = [
        ROW,
        replace(ROW, custom_id="18", state=JobState.FAILED, label=None, error="invalid_output"),
        replace(ROW, custom_id="19", state=JobState.PENDING, label=None, finished_at=None),
        replace(ROW, custom_id='Grüße\' "%s" :x', label="shipping"),
    ]
    for _ in range(2):
        assert table.sink().write(iter(rows), "batch-1") == 3
    assert table.rows(
        "SELECT custom_id, state, label, error, model, batch_id, note FROM labels ORDER BY custom_id"
    ) == [
        ("17", "succeeded", "billing", None, "qwen", "batch-1", "mine"),
        ("18", "failed", None, "invalid_output", "qwen", "batch-1", "mine"),
        ('Grüße\' "%s" :x', "succeeded", "shipping", None, "qwen", "batch-1", "mine"),
    ]


def test_a_later_result_replaces_the_row_and_leaves_other_columns_alone(table: UserTable) -> None:
    table.make()
    table.run("INSERT INTO labels (custom_id, label, note) VALUES ('17', NULL, 'by hand'), ('99', 'other', 'theirs')")
    table.sink().write([ROW], "batch-1")
    table.sink().write([replace(ROW, label="shipping", finished_at=TONIGHT)], "batch-2")
    assert table.rows("SELECT custom_id, label, batch_id, note FROM labels ORDER BY custom_id") == [
        ("17", "shipping", "batch-2", "by hand"),
        ("99", "other", None, "theirs"),
    ]


def test_an_older_result_that_is_written_again_changes_nothing(table: UserTable) -> None:
    table.make()
    table.sink().write([replace(ROW, label="shipping", finished_at=TONIGHT)], "batch-2")
    table.sink().write([ROW], "batch-1")
    assert table.rows("SELECT label, batch_id FROM labels") == [("shipping", "batch-2")]


def test_a_ticket_that_fails_takes_no_label_away(table: UserTable) -> None:
    table.make()
    table.sink().write([ROW], "batch-1")
    failed = replace(ROW, state=JobState.FAILED, label=None, error="too_long", finished_at=TONIGHT)
    table.sink().write([failed], "batch-2")
    assert table.rows("SELECT state, label, error FROM labels") == [("succeeded", "billing", None)]


def test_columns_have_the_names_that_the_settings_give(table: UserTable) -> None:
    table.run('CREATE TABLE "Odd" ("Ticket ID" INTEGER, "the label" TEXT, UNIQUE ("Ticket ID"))')
    sink = table.sink("Odd", columns={"custom_id": "Ticket ID", "label": "the label"})
    sink.write([ROW], "batch-1")
    sink.write([replace(ROW, label="shipping")], "batch-1")
    assert table.rows('SELECT * FROM "Odd"') == [(17, "shipping")]


def test_every_result_fits_into_the_table_that_the_error_proposes(table: UserTable) -> None:
    with refused("there is no table labels in", "make it with CREATE TABLE labels (custom_id TEXT, ") as caught:
        table.sink(columns=ALL).check()
    table.run(str(caught.value).partition("make it with ")[2])
    table.sink(columns=ALL).check()
    assert table.sink(columns=ALL).write([ROW], "batch-1") == 1
    ((prompt_tokens, latency_seconds, reused, batch_id),) = table.rows(
        "SELECT prompt_tokens, latency_seconds, reused, batch_id FROM labels"
    )
    assert (prompt_tokens, latency_seconds, reused, batch_id) == (120, 0.25, True, "batch-1")


def test_instants_are_utc(table: UserTable) -> None:
    table.make()
    table.sink().write([ROW], "batch-1")
    ((finished_at,),) = table.rows("SELECT CAST(finished_at AS TEXT) FROM labels")
    assert finished_at.replace("T", " ").rstrip("Z") == "2026-11-30 02:03:04.567"


def test_all_rows_are_written_or_none(table: UserTable) -> None:
    table.run("CREATE TABLE labels (custom_id TEXT PRIMARY KEY, label TEXT CHECK (label <> 'shipping'))")
    rows = [replace(ROW, custom_id=str(number)) for number in range(1500)]
    rows.append(replace(ROW, custom_id="last", label="shipping"))
    with refused("writing to labels failed on"):
        table.sink(columns={"custom_id": "custom_id", "label": "label"}).write(rows, "batch-1")
    assert table.rows("SELECT * FROM labels") == []


class TestATableThatCannotTakeThem:
    def test_lacks_a_column(self, table: UserTable) -> None:
        table.run("CREATE TABLE labels (custom_id TEXT PRIMARY KEY, state TEXT)")
        with refused("labels in", "has no column label; it has custom_id, state: name others in sink.columns"):
            table.sink().write([ROW], "batch-1")

    def test_has_no_unique_key_until_it_gets_the_one_that_is_proposed(self, table: UserTable) -> None:
        table.run("CREATE TABLE labels (custom_id TEXT, label TEXT, UNIQUE (custom_id, label))")
        sink = table.sink(columns={"custom_id": "custom_id", "label": "label"})
        with refused("has no unique key on custom_id", "CREATE UNIQUE INDEX labels_custom_id ON labels") as caught:
            sink.check()
        table.run("CREATE " + str(caught.value).rpartition("CREATE ")[2])
        assert sink.write([ROW], "batch-1") == 1


class TestPostgreSQL:
    @pytest.fixture
    def table(self, postgresql_url: str) -> Iterator[UserTable]:
        found = UserTable(postgresql_url)
        yield found
        found.dispose()

    def test_a_table_in_a_schema_with_keys_that_are_numbers(self, table: UserTable) -> None:
        table.run("CREATE SCHEMA support")
        table.run("CREATE TABLE support.labels (custom_id BIGINT PRIMARY KEY, label VARCHAR(20))")
        sink = table.sink("support.labels", columns={"custom_id": "custom_id", "label": "label"})
        sink.write([ROW], "batch-1")
        assert table.rows("SELECT * FROM support.labels") == [(17, "billing")]
        with refused("writing to support.labels failed on", 'invalid input syntax for type bigint: "SUP-1"'):
            sink.write([replace(ROW, custom_id="SUP-1")], "batch-1")

    def test_instants_are_utc_whatever_the_sessions_zone(self, table: UserTable) -> None:
        table.run(f"ALTER DATABASE {make_url(table.url).database} SET timezone TO 'Asia/Tokyo'")
        table.make()
        table.sink().write([ROW], "batch-1")
        assert table.rows("SELECT finished_at FROM labels") == [(LAST_NIGHT.replace(tzinfo=None),)]

    def test_who_cannot_be_reached_is_named_without_the_password(self, postgresql: PostgreSQL) -> None:
        url = postgresql.url("nowhere").replace("postgres@", "postgres:hush@")
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url.replace("+psycopg", ""))
        with refused("cannot reach postgresql+psycopg://postgres:***@/nowhere", "does not exist"):
            Sink(SinkSettings(url=url, table="labels")).check()


class TestUrls:
    def test_a_file_that_is_not_there_is_not_made(self) -> None:
        with refused("sink.url: there is no database file missing.db"):
            Sink(SinkSettings(url="sqlite:///missing.db", table="labels"))

    def test_a_database_that_cannot_upsert_here(self) -> None:
        with refused("sink.url"):
            Sink(SinkSettings(url="mysql+pymysql://db/x", table="labels"))
        with refused("sink.url is not a database URL"):
            Sink(SinkSettings(url="nonsense", table="labels"))


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"label": "label"}, "name a column for custom_id"),
        ({"custom_id": "id"}, "for something to be written"),
        ({"custom_id": "id", "label": "id"}, "the same column"),
        ({"custom_id": "id", "lable": "label"}, "lable"),
    ],
)
def test_columns_that_make_no_sense(columns: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        SinkSettings.model_validate({"url": "sqlite:///x.db", "table": "labels", "columns": columns})
