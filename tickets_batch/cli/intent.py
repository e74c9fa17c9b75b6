"""What one `submit` is to do: the settings and the command line, resolved into a source, a spec and two instants."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Self

from jobs.days import Day, business_day
from jobs.intake.source import Source, open_source
from jobs.spec import ClassificationSpec
from jobs.store.submissions import SubmitRequest
from tickets_batch.cli.blind import is_blind
from tickets_batch.cli.times import deadline_from, oddity
from tickets_batch.errors import SettingsError
from tickets_batch.settings import ExportFormat, Pool, Settings
from tickets_batch.words import counted


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked on the command line, beside the settings."""

    date: str = "today"
    every_row: bool = False
    input: Path | None = None
    deadline: str | None = None
    not_before: str | None = None
    update: bool = False
    new: bool = False
    allow_empty: bool = False
    pools: tuple[str, ...] = ()
    format: ExportFormat | None = None


@dataclass(frozen=True, slots=True)
class Intent:
    """A submit before it begins. `used` are its pools in order; `remarks` are lines that a person should read."""

    settings: Settings
    options: Options
    used: tuple[Pool, ...]
    day: Day
    source: Source
    spec: ClassificationSpec
    deadline_at: datetime | None
    not_before: datetime | None
    remarks: tuple[str, ...]

    @classmethod
    def of(cls, settings: Settings, options: Options, now: datetime) -> Self:
        """Resolve everything and open the source. Raises UserError, SettingsError."""
        spec = _spec(settings)
        used = _used(settings, options.pools)
        remarks = [
            f"pool {pool.name} has no signal: batch is blind to the chat there, and stays at its floor, "
            f"{pool.protected.batch.slots} of {counted(pool.capacity.slots, 'slot')}; add a [[pool.signal]], or "
            "protect all of it for batch where no chat goes there"
            for pool in used
            if is_blind(pool)
        ]
        zone = settings.zone
        day = business_day(options.date, zone, now)
        deadline, begin = options.deadline or settings.deadline, options.not_before or "none"
        deadline_at, not_before = deadline_from(deadline, zone, now), deadline_from(begin, zone, now)
        if not_before is not None and deadline_at is not None and not_before >= deadline_at:
            # At 23:00, "not before 22:00, done by 07:00" means tonight, whose 22:00 is over.
            remarks.append(f"{options.not_before} comes next after the deadline: the batch may begin at once")
            not_before, begin = None, "none"
        odd = (oddity("the deadline", deadline, zone, now), oddity("the begin", begin, zone, now))
        remarks += [line for line in odd if line]
        source = open_source(
            settings.source,
            day,
            every_row=options.every_row,
            override_path=options.input,
            override_format=options.format,
        )
        return cls(settings, options, used, day, source, spec, deadline_at, not_before, tuple(remarks))

    @property
    def model(self) -> str:
        """The model of the first pool: answers are reused between batches of the same one."""
        return self.used[0].model

    @property
    def pools(self) -> tuple[str, ...]:
        """The pools in the order in which they are to be used."""
        return tuple(pool.name for pool in self.used)

    @property
    def whose(self) -> str:
        """Which rows are meant, for a person."""
        return "every row" if self.options.every_row else str(self.day)

    def request(self) -> SubmitRequest:
        """What the store is asked for."""
        options = self.options
        return SubmitRequest(
            source_key=self.source.key,
            source=self.source.describe(),
            date=None if options.every_row else self.day.date,
            zone=self.settings.timezone,
            spec=self.spec.model_dump(mode="json"),
            spec_hash=self.spec.hash,
            model=self.model,
            pools=self.pools,
            not_before=self.not_before,
            deadline_at=self.deadline_at,
            update=options.update,
            new=options.new,
            allow_empty=options.allow_empty,
        )


def require_pool(settings: Settings) -> None:
    """Raises SettingsError when there is no model to call."""
    if not settings.pool:
        raise SettingsError(
            "no model is configured: write a [[pool]] in tickets-batch.toml, "
            "or set OPENAI_BASE_URL and add --model NAME"
        )


def require_keys(settings: Settings) -> None:
    """Raises SettingsError when a pool's api_key refers to nothing: no worker could start."""
    for pool in settings.pool:
        if pool.api_key is not None:
            pool.api_key.reveal()


def _used(settings: Settings, names: tuple[str, ...]) -> tuple[Pool, ...]:
    """The named pools in the order in which they were named; all of the settings where none is."""
    known = {pool.name: pool for pool in settings.pool}
    if unknown := [name for name in names if name not in known]:
        raise SettingsError(f"--pool {unknown[0]}: there is no such pool; the settings have {', '.join(known)}")
    return tuple(known[name] for name in dict.fromkeys(names or known))


def _spec(settings: Settings) -> ClassificationSpec:
    require_pool(settings)
    if settings.classification is None:
        raise SettingsError(
            "no labels are configured: write [classification] labels in tickets-batch.toml, or add --labels a,b,c"
        )
    return ClassificationSpec.of(settings.classification)
