"""The ledger of permits in Redis: with its line, the only module that talks to it.

Every verb is one Lua script that reads the server's clock. Permits are members with an expiry, renewed only while they
exist and released by their token; keys without traffic expire, except the ledger's epoch (`PERMANENT_KEYS`).
"""

import secrets
import struct
from collections.abc import AsyncGenerator, Container, Sequence
from typing import Any, Self

from redis.asyncio import Redis
from redis.exceptions import RedisError

from scheduler import line, scripts
from scheduler.capacity import Amount, PoolCapacity
from scheduler.line import Line
from scheduler.permit import Ask, Kind, Outlook, Permit, PublishedLimit, Reason, Refusal, Standing
from scheduler.snapshot import FirstToken, Snapshot
from tickets_batch.errors import SettingsError, UserError

LEASE_SECONDS = 5.0
PREFIX = "tickets-batch"
KEYS = (
    "permits",
    "ranks",
    "epoch",
    "limit",
    "observed",
    "paused",
    "firsts",
    "beat",
    "revoked",
)  # the last is a channel
PERMANENT_KEYS = ("epoch",)
_LETTER = {Kind.INTERACTIVE: "i", Kind.BATCH: "b"}
_KIND = {letter: kind for kind, letter in _LETTER.items()}
_RENEWED_AT_ONCE = 1_000  # permits in a call: nobody else is served meanwhile


class LedgerUnavailable(UserError):
    """Redis does not answer: nothing new is admitted until it does."""


class Ledger:
    """The permits of one pool. Raises LedgerUnavailable from every verb when Redis does not answer in seconds."""

    def __init__(
        self,
        redis: Redis,
        pool: str,
        capacity: PoolCapacity,
        lease_seconds: float = LEASE_SECONDS,
        clock: str | None = None,
    ) -> None:
        self.pool = pool
        self.capacity = capacity
        self.lease_seconds = lease_seconds
        self._redis = redis
        # The braces keep one pool's keys together on a cluster.
        self._keys = [f"{PREFIX}:{{{pool}}}:{key}" for key in KEYS]
        amounts = (capacity.total, capacity.protected_interactive, capacity.floor)
        common = struct.pack("<7d", _ms(lease_seconds), *(n for a in amounts for n in (a.slots, a.tokens)))
        self._line = Line(redis, {verb: scripts.compose(verb, clock) for verb in scripts.VERBS}, self._keys, [common])

    @classmethod
    def connect(cls, redis_url: str, pool: str, capacity: PoolCapacity, lease_seconds: float = LEASE_SECONDS) -> Self:
        """A ledger with its own connections; nothing is sent yet. Raises SettingsError when the URL is none."""
        try:
            redis = line.connect(redis_url)
        except ValueError as error:
            raise SettingsError(
                "redis_url is not a Redis URL: write redis://host:6379/0, or rediss:// for TLS"
            ) from error
        return cls(redis, pool, capacity, lease_seconds)

    async def aclose(self) -> None:
        """Close the connections; permits stay until they are released or expire."""
        await self._line.aclose()

    # --- for holders

    async def acquire(self, kind: Kind, ask: Ask) -> Permit | Refusal:
        """Admit one request, or say why not."""
        token = secrets.token_hex(8)
        verb = "acquire_batch" if kind is Kind.BATCH else "acquire_interactive"
        tokens = ask.prompt_tokens + ask.output_tokens
        answer = await self._call(verb, token, ask.prompt_tokens, tokens, ask.expected_ms, int(not ask.streamed))
        if isinstance(answer, int):
            return Permit(token, kind, ask, str(answer))
        reason, *rest = answer
        retry_after_ms = int(rest[0]) if rest else -1
        return Refusal(Reason(reason), retry_after_ms / 1000 if retry_after_ms >= 0 else None)

    async def first_token(self, permit: Permit, *, is_late: bool = False) -> Standing:
        """The engine has begun to answer; `is_late`: some time ago, which says nothing of how long it took."""
        return Standing(await self._call("first_token", permit.token, int(not is_late)))

    async def settle(self, permit: Permit, tokens: int) -> None:
        """Book the true tokens of a request in place of the estimate."""
        await self._call("settle", permit.token, tokens)

    async def renew(self, permits: Sequence[Permit], held: Container[str] | None = None) -> dict[str, Standing]:
        """Extend permits by one lease and learn where each stands, by token.

        A permit that a newer ledger does not know is registered again: its request is in flight. An interactive holder
        whose permit is gone goes on and registers again too, a batch holder stops. `held`: the tokens in use at any
        moment; what is given back meanwhile is not registered. Without it all of them are in use.
        """
        standings: dict[str, Standing] = {}
        for first in range(0, len(permits), _RENEWED_AT_ONCE):
            standings |= await self._renew(permits[first : first + _RENEWED_AT_ONCE], held)
        return standings

    async def beat(self) -> None:
        """A gateway or guard is alive: chat that does not show in the ledger is not there."""
        await self._call("beat")

    async def refuse(self) -> None:
        """Count a chat request that has waited for room as long as it may, and was refused for good."""
        await self._call("refuse")

    async def release(self, permit: Permit) -> None:
        """Give a permit back."""
        await self._call("release", permit.token)

    async def drain(self, permit: Permit, seconds: float) -> None:
        """Leave a withdrawn request counted until the engine is surely done with it."""
        await self._call("drain", permit.token, _ms(seconds))

    async def revocations(self) -> AsyncGenerator[set[str], None]:
        """The tokens of permits asked back, as they are announced; close it with `contextlib.aclosing`.

        A hint: what is missed here, the next renewal tells.
        """
        try:
            async with self._redis.pubsub(ignore_subscribe_messages=True) as subscription:
                await subscription.subscribe(self._keys[-1])
                while True:
                    message = await subscription.get_message(timeout=1.0)
                    if message is not None:
                        yield set(message["data"].split())
        except (RedisError, OSError) as error:
            raise LedgerUnavailable(_why(error)) from error

    # --- for the scheduler

    async def publish(self, limit: PublishedLimit, ttl_seconds: float, leader_epoch: int, note: str = "") -> bool:
        """Put a limit in force for `ttl_seconds`; False when a newer leader has spoken. `note` says why it is so."""
        amount, o = limit.limit, limit.outlook
        numbers = [o.high.slots, o.high.tokens, o.arrivals_milli, o.request_tokens, o.reserve]
        numbers += [o.prefill_rate, o.prefill_ahead_tokens, o.prefill_beside_tokens]
        numbers += [number for rise in o.rises for number in (rise.slots, rise.tokens)]
        answer = await self._call(
            "publish", amount.slots, amount.tokens, limit.prefill_tokens, _ms(ttl_seconds), leader_epoch,
            " ".join(map(str, numbers)), note,
        )  # fmt: skip
        return bool(answer)

    async def revoke(self, target: Amount) -> list[str]:
        """Ask back what batch holds over `target`, or over its floor where that is more; the tokens asked back."""
        return list(await self._call("revoke", target.slots, target.tokens))

    async def observe(self, amount: Amount, ttl_seconds: float) -> list[str]:
        """Take note of the interactive load seen at the engine; the batch permits asked back for it."""
        return list(await self._call("observe", amount.slots, amount.tokens, _ms(ttl_seconds)))

    async def pause(self, seconds: float) -> None:
        """Admit no batch request for a while; a longer pause stands."""
        await self._call("pause", _ms(seconds))

    async def found(self) -> None:
        """Begin a new ledger at once, where it is certain that no earlier one has given permits."""
        await self._call("found")

    async def snapshot(self) -> Snapshot:
        """Who holds what now, and the limit in force."""
        numbers, epoch, recent, note, rises = await self._call("snapshot")
        return _read_snapshot([int(number) for number in numbers], str(epoch), recent, str(note), rises)

    # --- inside

    async def _renew(self, permits: Sequence[Permit], held: Container[str] | None) -> dict[str, Standing]:
        epoch, *answers = await self._call("renew", *(permit.token for permit in permits))
        standings = {permit.token: Standing(answer) for permit, answer in zip(permits, answers, strict=True)}
        for permit in permits:
            lost_memory = permit.epoch != str(epoch) or permit.kind is Kind.INTERACTIVE
            if standings[permit.token] is Standing.GONE and lost_memory and (held is None or permit.token in held):
                standings[permit.token] = await self._register(permit)
                if held is not None and permit.token not in held:
                    # It ended on the way, and its release may have come before the registration.
                    await self.release(permit)
                    standings[permit.token] = Standing.GONE
        return standings

    async def _register(self, permit: Permit) -> Standing:
        ask = permit.ask
        kind = _LETTER[permit.kind]
        answer = await self._call("register", permit.token, kind, ask.prompt_tokens, ask.amount.tokens, ask.expected_ms)
        return Standing(answer)

    async def _call(self, verb: str, *arguments: str | int) -> Any:
        try:
            return await self._line.call(verb, *arguments)
        except (RedisError, OSError) as error:
            raise LedgerUnavailable(_why(error)) from error


def _read_snapshot(
    numbers: Sequence[int], epoch: str, recent: Sequence[str], note: str, rises: Sequence[int]
) -> Snapshot:
    """The numbers come in the order in which `lua/snapshot.lua` gives them."""
    now, settled_at, i_slots, i_tokens, b_slots, b_tokens, r_slots, r_tokens, prefill, expected_ms, waiting = numbers[
        :11
    ]
    arrivals, refused, revoked, first_tokens = numbers[15:19]
    slots, tokens, prefill_limit = numbers[19:22]
    high_slots, high_tokens, arrivals_milli, request_tokens, reserve, rate, ahead_tokens, beside_tokens = numbers[22:30]
    limit_until, seen_slots, seen_tokens, seen_until, paused_until, beat_at, oldest_ms = numbers[30:]
    return Snapshot(
        interactive=Amount(i_slots, i_tokens),
        batch=Amount(b_slots, b_tokens),
        batch_expected_seconds=expected_ms / max(1, b_slots) / 1000,
        reclaiming=Amount(r_slots, r_tokens),
        prefill_tokens=prefill,
        limit=Amount(slots, tokens),
        prefill_limit_tokens=prefill_limit,
        limit_is_published=settled_at <= now < limit_until,
        observed=Amount(seen_slots, seen_tokens),
        observed_is_fresh=now < seen_until,
        paused_seconds=max(0, paused_until - now) / 1000,
        interactive_waiting=waiting,
        oldest_waiting_seconds=oldest_ms / 1000,
        epoch=epoch,
        outlook=Outlook(
            high=Amount(high_slots, high_tokens),
            arrivals_milli=arrivals_milli,
            request_tokens=request_tokens,
            reserve=reserve,
            prefill_rate=rate,
            prefill_ahead_tokens=ahead_tokens,
            prefill_beside_tokens=beside_tokens,
            rises=tuple(map(Amount, rises[::2], rises[1::2])),
        ),
        arrivals=arrivals,
        refused=refused,
        revoked=revoked,
        first_tokens=first_tokens,
        recent=tuple(_first_token(record) for record in recent),
        beat_age_seconds=None if beat_at < 0 else (now - beat_at) / 1000,
        note=note,
    )


def _first_token(record: str) -> FirstToken:
    letter, ms, prompt_tokens = record.split()
    return FirstToken(_KIND[letter], int(ms) / 1000, int(prompt_tokens))


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _why(error: Exception) -> str:
    return f"Redis does not answer ({type(error).__name__}): check redis_url and the server; nothing new is admitted"
