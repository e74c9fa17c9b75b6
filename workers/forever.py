"""Something done again and again for as long as the process lives."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tickets_batch.errors import UserError

log = logging.getLogger(__name__)


async def for_ever(seconds: float, act: Callable[[], Awaitable[None]]) -> None:
    """Rest for `seconds` and do `act`, until cancelled; a failure is said, and the next time it may go well."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await act()
        except UserError as error:
            log.warning("%s", error)
        except Exception:
            log.exception("a loop of this worker failed; it goes on")
