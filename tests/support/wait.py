"""Waiting for something to become true, instead of sleeping for as long as it usually takes."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T], what: str, timeout_seconds: float = 10.0, interval_seconds: float = 0.02
) -> T:
    """Poll `condition` and return its first true value; an AssertionError names what was awaited in vain."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(_in_vain(what, timeout_seconds, value))
        time.sleep(interval_seconds)


@overload
async def wait_until_async(
    condition: Callable[[], Awaitable[T]], what: str, timeout_seconds: float = ..., interval_seconds: float = ...
) -> T: ...


@overload
async def wait_until_async(
    condition: Callable[[], T], what: str, timeout_seconds: float = ..., interval_seconds: float = ...
) -> T: ...


async def wait_until_async(
    condition: Callable[[], Any], what: str, timeout_seconds: float = 10.0, interval_seconds: float = 0.02
) -> Any:
    """The same on an event loop; `condition` may be a coroutine function."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        found = condition()
        value = await found if inspect.isawaitable(found) else found
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(_in_vain(what, timeout_seconds, value))
        await asyncio.sleep(interval_seconds)


def _in_vain(what: str, timeout_seconds: float, value: object) -> str:
    return f"waited {timeout_seconds:g} s in vain for {what} (last value: {value!r})"
