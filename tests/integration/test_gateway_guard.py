"""The in-process guard on a real ledger: the same rules for an application that calls the model itself."""

import asyncio
from pathlib import Path

import pytest

from gateway.guard import Guard, TooBusy, TooLarge
from tests.support.gateways import chat_settings, ledger_of
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until_async
from tickets_batch.errors import SettingsError
from tickets_batch.settings import Settings

MESSAGES = [{"role": "user", "content": "Where is my parcel?"}]


@pytest.fixture
def settings(valkey: ValkeyServer) -> Settings:
    """Two slots, one of which is the chat's."""
    return chat_settings(valkey.url, "http://127.0.0.1:9/v1", slots=2, tokens=8_000, wait_ms=50)


def test_a_request_is_counted_while_its_block_runs(settings: Settings) -> None:
    async def scene() -> None:
        async with Guard.connect(settings) as guard, ledger_of(settings) as ledger:
            async with guard.request(MESSAGES, max_output_tokens=300) as request:
                held = await ledger.snapshot()
                assert held.interactive.slots == 1
                assert 300 < held.interactive.tokens < 330
                assert held.interactive_waiting == 1
                for _ in range(3):
                    request.first_token()

                async def is_told() -> bool:
                    return (await ledger.snapshot()).interactive_waiting == 0

                await wait_until_async(is_told, "the first token to be told")
            assert not request.is_open

            async def is_free() -> bool:
                return (await ledger.snapshot()).interactive.slots == 0

            await wait_until_async(is_free, "its room to be given back")

    asyncio.run(scene())


def test_a_block_that_fails_gives_its_room_back(settings: Settings) -> None:
    async def scene() -> None:
        async with Guard.connect(settings) as guard:
            for _ in range(3):
                with pytest.raises(ZeroDivisionError):
                    async with guard.request(prompt_tokens=10, max_output_tokens=10):
                        raise ZeroDivisionError

    asyncio.run(scene())


def test_what_has_no_room_is_told_when_to_come_again(settings: Settings) -> None:
    async def scene() -> None:
        async with Guard.connect(settings) as guard:
            async with guard.request(prompt_tokens=10, max_output_tokens=10):
                with pytest.raises(TooBusy, match="try again in") as refused:
                    async with guard.request(prompt_tokens=10, max_output_tokens=10):
                        pytest.fail("two in the room of one")
                assert 0.5 <= refused.value.retry_after_seconds <= 2.5
            with pytest.raises(TooLarge, match="9000 prompt tokens"):
                async with guard.request(prompt_tokens=9000, max_output_tokens=10):
                    pytest.fail("more than there is")

    asyncio.run(scene())


def test_who_waits_is_let_in_before_who_comes_later(settings: Settings) -> None:
    patient = settings.model_copy(update={"gateway": settings.gateway.model_copy(update={"wait_ms": 5000})})

    async def scene() -> None:
        order: list[str] = []
        async with Guard.connect(patient) as guard:

            async def come(name: str) -> None:
                async with guard.request(prompt_tokens=10, max_output_tokens=10):
                    order.append(name)

            async def all_wait() -> bool:
                return guard._door.waiting == 3

            await come("a")  # the server knows all scripts from here on, and takes what it is told in one order
            async with asyncio.TaskGroup() as group:
                async with guard.request(prompt_tokens=10, max_output_tokens=10):
                    for name in "bcd":
                        group.create_task(come(name))
                    await wait_until_async(all_wait, "the others to wait")
                await come("e")
        assert order == ["a", "b", "c", "d", "e"]

    asyncio.run(scene())


def test_it_beats_and_keeps_what_is_held_for_longer_than_a_lease(settings: Settings) -> None:
    async def scene() -> None:
        async with Guard.connect(settings) as guard, ledger_of(settings) as ledger:
            async with guard.request(prompt_tokens=10, max_output_tokens=10):
                begun = asyncio.get_running_loop().time()

                async def a_lease_has_passed() -> bool:
                    seen = await ledger.snapshot()
                    assert seen.interactive.slots == 1
                    assert seen.beat_age_seconds is None or seen.beat_age_seconds < 4
                    return asyncio.get_running_loop().time() - begun > ledger.lease_seconds + 1

                await wait_until_async(a_lease_has_passed, "a lease to pass", timeout_seconds=20)
            assert (await ledger.snapshot()).beat_age_seconds is not None

    asyncio.run(scene())


def test_without_redis_everything_is_let_in(settings: Settings, tmp_path: Path) -> None:
    async def scene() -> None:
        nowhere = ValkeyServer(tmp_path).url
        async with (
            Guard.connect(settings, redis_url=nowhere) as guard,
            guard.request(prompt_tokens=10, max_output_tokens=10) as one,
            guard.request(prompt_tokens=10, max_output_tokens=10) as two,
        ):
            assert one.is_open
            assert two.is_open
            assert guard.is_away

    asyncio.run(scene())


def test_it_reads_the_settings_file_like_the_command(valkey: ValkeyServer, tmp_path: Path) -> None:
    file = tmp_path / "tickets-batch.toml"
    file.write_text(
        f'redis_url = "{valkey.url}"\n[[pool]]\nname = "gpu"\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "m"\n'
        "capacity = { slots = 2, tokens = 8000 }\n"
    )

    async def scene() -> None:
        async with (
            Guard.connect(file, pool="gpu") as guard,
            guard.request(MESSAGES, max_output_tokens=10) as request,
        ):
            assert not request.is_open

    asyncio.run(scene())
    with pytest.raises(SettingsError, match="no pool for chat is called other: there is gpu"):
        Guard.connect(file, pool="other")


def test_without_any_redis_to_use_it_says_so(settings: Settings, tmp_path: Path) -> None:
    homeless = settings.model_copy(update={"redis_url": None, "home": tmp_path})
    with pytest.raises(SettingsError, match="no Redis to keep the permits in"):
        Guard.connect(homeless)
