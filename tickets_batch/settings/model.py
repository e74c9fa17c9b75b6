"""The tables and keys of the settings, what each accepts, and what it is when nobody says otherwise.

A field's description says in one sentence what the key is for; the page of settings is made from it.
"""

from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from tickets_batch.settings.accepts import Accepts
from tickets_batch.settings.classification import Classification
from tickets_batch.settings.pool import Pool
from tickets_batch.settings.secret import Secret, Section, ServiceUrl, reveal
from tickets_batch.settings.sink import Sink
from tickets_batch.settings.source import Source

PREFIX = "TICKETS_BATCH__"
CLOCK_TIME = r"^([01]\d|2[0-3]):[0-5]\d$"


class Gateway(Section):
    """The interactive door."""

    listen: Annotated[
        str,
        Field(pattern=r"^\S+:\d{1,5}$", description="the address of the chat's door"),
        Accepts('HOST:PORT, as in "127.0.0.1:8090"'),
    ] = "127.0.0.1:8090"
    keys: Annotated[
        Secret | None,
        Field(
            description="a reference to the keys that callers may show, one a line; without it what a caller shows "
            "goes on to the model"
        ),
        Accepts('only a reference to the keys, one a line: { file = "/path" } or { env = "NAME" }'),
    ] = None
    max_output_tokens: Annotated[
        int, Field(ge=1, description="the cap on every chat answer, in tokens, also for callers that name none")
    ] = 1024
    wait_ms: Annotated[
        int,
        Field(
            ge=0,
            le=5000,
            description="how long a chat request that finds no room waits before it is told to come again, in "
            "milliseconds",
        ),
    ] = 300
    max_body_bytes: Annotated[int, Field(ge=1024, description="the largest chat request, in bytes")] = 4 * 1024 * 1024
    max_connections: Annotated[int, Field(ge=1, description="callers at a time; one more is refused")] = 1000


class Scheduler(Section):
    """How the scheduler behaves."""

    metrics_listen: Annotated[
        str | None,
        Field(
            pattern=r"^\S+:\d{1,5}$", description="where the scheduler shows its metrics to Prometheus; else nowhere"
        ),
        Accepts('HOST:PORT, as in "127.0.0.1:9102"'),
    ] = None
    holdout: Annotated[
        float,
        Field(
            ge=0,
            le=0.5,
            description="the share of the minutes in which batch stays at its floor whatever the load, so that the "
            "report can tell what batch costs the chat; 0 for none",
        ),
    ] = 0.02


class Alert(Section):
    """Who is told when a batch may miss its deadline, and when it has ended."""

    webhook: Annotated[
        Secret | None,
        Field(description="a reference to the URL that is told when the pace changes, and when a batch has ended"),
        Accepts('only a reference to the URL: { env = "NAME" } or { file = "/path" }'),
    ] = None


class Worker(Section):
    """How the worker processes behave; the defaults suit a night."""

    processes: Annotated[int, Field(ge=1, le=256, description="worker processes of one `worker` or `up` command")] = 2
    at_once: Annotated[int, Field(ge=1, le=4096, description="the most requests that one process keeps in flight")] = (
        256
    )
    attempts: Annotated[
        int, Field(ge=1, le=100, description="how many calls that say something of it one ticket may take")
    ] = 5
    lease_seconds: Annotated[
        float,
        Field(ge=1, description="after this many seconds the tickets of a worker that has gone are others' to take"),
    ] = 15.0
    stop_grace_seconds: Annotated[
        float, Field(ge=0, description="what is in flight may go on so many seconds after a worker is told to stop")
    ] = 5.0
    metrics_listen: Annotated[
        str | None,
        Field(
            pattern=r"^\S+:\d{1,5}$",
            description="where the first process of a command shows its metrics to Prometheus, the second on the next "
            "port, and so on; else nowhere",
        ),
        Accepts('HOST:PORT, as in "127.0.0.1:9103"'),
    ] = None


class Settings(BaseSettings):
    """Everything tickets-batch can be told. Made by `load`; made directly it does not read the environment."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        validate_default=True,
    )

    timezone: Annotated[
        str,
        Field(description="the IANA time zone in which the business day, the deadline and hours live"),
        Accepts('an IANA time zone, as in "Europe/Berlin"'),
    ] = "UTC"
    deadline: Annotated[
        str,
        Field(pattern=CLOCK_TIME + "|^none$", description="when the tickets must be done, on the clocks there"),
        Accepts('HH:MM as text, as in "07:00", or "none"'),
    ] = "none"
    deadline_grace_seconds: Annotated[
        float, Field(ge=0, le=300, description="what is at the model at the deadline may go on so many seconds")
    ] = 2.0
    home: Annotated[Path, Field(description="the directory for embedded services, SQLite, logs and reports")] = Path(
        ".tickets-batch"
    )
    keep_text: Annotated[
        bool,
        Field(
            description="false: the text of the tickets is removed as soon as their batch has ended, as `purge` does"
        ),
        Accepts("true or false"),
    ] = True
    database_url: Annotated[ServiceUrl, Field(description="PostgreSQL or SQLite; without it, SQLite under `home`")] = (
        None
    )
    redis_url: Annotated[
        ServiceUrl, Field(description="Redis or Valkey; without it, a Valkey server of its own under `home`")
    ] = None
    source: Source = Source()
    sink: Sink | None = None
    classification: Classification | None = None
    pool: Annotated[
        tuple[Pool, ...],
        Accepts("a list of pools: [[pool]] in the file, JSON in the environment"),
    ] = ()
    gateway: Gateway = Gateway()
    scheduler: Scheduler = Scheduler()
    alert: Alert = Alert()
    worker: Worker = Worker()

    @field_validator("timezone")
    @classmethod
    def _zone_exists(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ValueError, OSError, KeyError) as error:
            raise ValueError('not an IANA time zone; write for example "Europe/Berlin"') from error
        return name

    @field_validator("home")
    @classmethod
    def _home_of_the_user(cls, home: Path) -> Path:
        try:
            return home.expanduser()
        except RuntimeError as error:
            raise ValueError("its ~ stands for no known user's directory") from error

    @field_validator("pool")
    @classmethod
    def _names_are_distinct(cls, pools: tuple[Pool, ...]) -> tuple[Pool, ...]:
        if len({pool.name for pool in pools}) != len(pools):
            raise ValueError("two pools have the same name")
        return pools

    @property
    def zone(self) -> ZoneInfo:
        """The zone in which the business day and the deadline live."""
        return ZoneInfo(self.timezone)

    @property
    def effective_database_url(self) -> str:
        """The configured database, or SQLite under `home`."""
        return f"sqlite:///{self.database_file}" if self.database_url is None else reveal(self.database_url)

    @property
    def database_file(self) -> Path:
        """The SQLite file under `home` that is used where no database is configured."""
        return self.home.absolute() / "tickets-batch.db"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what `load` has merged: its rule for tables that replace each other is not the library's."""
        return (init_settings,)
