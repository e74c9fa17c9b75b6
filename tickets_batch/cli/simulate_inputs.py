"""What `simulate` plays: a pool of the settings, an engine, tickets and chat, each with where it came from."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

from jobs.store import curves, samples
from jobs.store.batches import Batch
from jobs.store.database import Database
from jobs.store.samples import LoadSample
from scheduler.capacity import PoolCapacity
from scheduler.curve import Curve, UnreadableCurve
from scheduler.hours import SharedHours
from scheduler.pools import capacity_of
from scheduler.simulation.engine.profile import EngineProfile
from scheduler.simulation.fitted import DEFAULT_LENGTHS, fitted
from scheduler.simulation.night import Night
from scheduler.simulation.replay import Stretch, replayed
from scheduler.simulation.shapes import SHAPES, Arrival
from scheduler.simulation.site import Site
from scheduler.simulation.tickets import Ticket, of_mean_lengths
from scheduler.simulation.trace import Trace, TraceUnreadable
from scheduler.speed import unshared
from tickets_batch.cli.blind import is_blind
from tickets_batch.cli.times import shown_instant
from tickets_batch.errors import SettingsError, UserError
from tickets_batch.progress import duration
from tickets_batch.settings import Pool, Settings

NOBODY = "none"
LONGEST = timedelta(days=1)  # that a night without a deadline is played
LONGEST_STRETCH_SECONDS = 60.0  # between two samples; in a longer one the scheduler was away
SHAPE_SLOTS = 20  # of the engine that the shapes of chat were made for
SHAPE_REQUEST = (512, 100)  # tokens in and out of a request of theirs


@dataclass(frozen=True, slots=True)
class Engine:
    """The model of a pool's engine; `curve` is what it was fitted to, None where it is the default."""

    profile: EngineProfile
    curve: Curve | None
    origin: str

    @classmethod
    def of(cls, pool: Pool, settings: Settings, db: Database | None) -> "Engine":
        """Fitted to the newest measurement of this pool with its model; else the default with the pool's slots."""
        stored = curves.latest(db, pool.name) if db is not None else None
        slots = max(1, pool.capacity.slots)
        why = "nothing was measured"
        if stored is not None and stored.model != pool.model:
            why = f"{stored.model} was measured there, not {pool.model}"
        elif stored is not None:
            try:
                curve = Curve.from_json(stored.detail)
            except UnreadableCurve as error:
                why = str(error)
            else:
                profile = fitted(curve, slots)
                origin = f"fitted to the measurement of {shown_instant(stored.measured_at, settings.zone)}"
                return cls(_with_room(profile, pool), curve, origin)
        default = replace(EngineProfile(), slots=slots, step_token_budget=max(2048, 2 * slots))
        origin = f"default, a 7B model on one middle GPU: {why}; plan --measure {pool.name} measures yours"
        return cls(_with_room(default, pool), None, origin)


@dataclass(frozen=True, slots=True)
class Tickets:
    """The tickets of a night, and where their lengths come from."""

    tickets: Sequence[Ticket]
    prompt_tokens: float
    output_tokens: float
    origin: str

    @classmethod
    def of(
        cls,
        settings: Settings,
        count: int,
        lengths: tuple[float, float] | None,
        engine: Engine,
        batch: Batch | None,
        seed: int,
    ) -> "Tickets":
        """So many, with the mean lengths that were given, or else the best that is known; the cap is the settings'."""
        answered = 0 if batch is None else batch.succeeded + batch.failed - batch.reused
        if lengths is not None:
            (prompt, output), origin = lengths, "given"
        elif batch is not None and answered > 0 and batch.prompt_tokens > 0:
            prompt, output = batch.prompt_tokens / answered, max(1.0, batch.completion_tokens / answered)
            origin = f"as in {batch.id}"
        elif engine.curve is not None:
            prompt, output = engine.curve.prompt_tokens, engine.curve.output_tokens
            origin = "as when the pool was measured"
        else:
            (prompt, output), origin = DEFAULT_LENGTHS, "assumed: say --ticket-tokens IN,OUT"
        cap = settings.classification.max_output_tokens if settings.classification is not None else 0
        return cls(of_mean_lengths(count, prompt, output, seed, cap), prompt, output, origin)


def site_of(pool: Pool, settings: Settings, engine: Engine) -> Site:
    """The pool as it is configured, before that engine."""
    return Site(
        pool.name,
        engine.profile,
        1,
        _reachable(pool),
        _chat_scale(engine.profile),
        pool.ttft_target_seconds,
        settings.gateway.wait_ms / 1000,
    )


def night_of(
    pool: Pool,
    settings: Settings,
    engine: Engine,
    tickets: Sequence[Ticket],
    chat: Sequence[Arrival],
    starts_at: datetime,
    deadline_at: datetime | None,
    seed: int,
) -> Night:
    """One night; without a deadline it ends a day after its start at the latest."""
    return Night(
        site_of(pool, settings, engine),
        SharedHours.of(pool.shared_hours, settings.zone),
        tickets,
        chat,
        starts_at,
        deadline_at or starts_at + LONGEST,
        settings.deadline_grace_seconds,
        seed,
        holdout=settings.scheduler.holdout,
    )


def under(night: Night, pool: Pool, settings: Settings) -> Night:
    """The same night, its engine and its chat, in a pool of other settings."""
    site = replace(night.site, capacity=_reachable(pool), ttft_target_seconds=pool.ttft_target_seconds)
    return replace(night, site=site, hours=SharedHours.of(pool.shared_hours, settings.zone))


def chat_of(wanted: str, site: Site, seconds: float, seed: int) -> tuple[list[Arrival], str]:
    """So much of the chat that `wanted` names, and what it is in words. Raises UserError, SettingsError."""
    if wanted == NOBODY:
        return [], "nobody chats"
    if wanted in SHAPES:
        return SHAPES[wanted](site, seed, seconds), f"the shape {wanted}, scaled to this engine"
    path = Path(wanted)
    if not path.is_file():
        raise SettingsError(
            f"--chat {wanted}: there is no such file, and no such shape; shapes are {', '.join(SHAPES)}, {NOBODY}"
        )
    try:
        trace = Trace.read(path)
    except TraceUnreadable as error:
        raise UserError(str(error)) from error
    return _laps(trace, seconds, seed), f"{path.name}{_again(trace, seconds)}, its first request at the start"


def chat_of_night(
    batch: Batch, pool: Pool, engine: Engine, db: Database, starts_at: datetime, seconds: float, seed: int
) -> tuple[list[Arrival], str]:
    """The chat that the pool's samples of that night tell of, and what it is in words. Raises UserError."""
    until = batch.finished_at or db.now()
    stretches = list(_stretches(samples.between(db, pool.name, starts_at, until), starts_at))
    if not stretches:
        raise UserError(
            f"nothing is stored of the chat in pool {pool.name} during {batch.id}: there is no night to replay"
        )
    trace = replayed(stretches, engine.profile, random.Random(seed))  # noqa: S311 - a night that can be played again
    if trace is None:
        return [], f"nobody chatted during {batch.id}"
    return _laps(trace, seconds, seed), f"as stored of {batch.id}{_again(trace, seconds)}"


def _reachable(pool: Pool) -> PoolCapacity:
    """The capacity by which a night in this pool goes: blind, batch never gets anything of what is shared."""
    capacity = capacity_of(pool)
    return unshared(capacity) if is_blind(pool) else capacity


def _with_room(profile: EngineProfile, pool: Pool) -> EngineProfile:
    """The engine holds what the pool is configured to carry, and takes any request that may be admitted."""
    tokens = max(2, pool.capacity.tokens)
    return replace(profile, kv_capacity_tokens=tokens, context_tokens=tokens)


def _chat_scale(profile: EngineProfile) -> Fraction:
    """How much more a full engine of this profile can chat than the one that the shapes were made for."""

    def requests_per_second(engine: EngineProfile) -> float:
        prompt, output = SHAPE_REQUEST
        step_seconds = engine.step_base_seconds + engine.slots * engine.decode_sequence_seconds
        return engine.slots / max(1e-9, engine.slots * prompt * engine.prefill_token_seconds + output * step_seconds)

    usual = replace(EngineProfile(), slots=SHAPE_SLOTS)
    return Fraction(requests_per_second(profile) / requests_per_second(usual)).limit_denominator(1000)


def _laps(trace: Trace, seconds: float, seed: int) -> list[Arrival]:
    return sorted(trace.lap(0.0, seconds, 1.0, random.Random(seed)))  # noqa: S311 - of each request all


def _again(trace: Trace, seconds: float) -> str:
    return f", which comes again every {duration(trace.seconds)}" if seconds > trace.seconds + 60 else ""


def _stretches(stored: Sequence[LoadSample], starts_at: datetime) -> Iterator[Stretch]:
    """The samples with the time since the one before each; while the scheduler was away nothing is known to have come.

    Who was refused came too.
    """
    if not stored:
        return
    before = [starts_at, *(sample.at for sample in stored)]
    for (since, at), sample in zip(pairwise(before), stored, strict=True):
        seconds = (at - since).total_seconds()
        if seconds > LONGEST_STRETCH_SECONDS:
            yield Stretch(seconds - LONGEST_STRETCH_SECONDS, 0, 0, 0)
            seconds = LONGEST_STRETCH_SECONDS
        came = sample.interactive_arrivals + sample.interactive_refused
        if seconds > 0:
            yield Stretch(seconds, came, sample.interactive_slots, sample.interactive_tokens)
