"""The priority of batch's requests at engines that serve by priority: chat's, which carry none, go first.

vLLM serves the lower number first, and a request without one counts as 0. SGLang serves the higher number first; a
request without one has the lowest there is, unless the server was started with `--default-priority-value`: so batch
takes that lowest too. It is never served before the chat, and after it where the chat has a priority or a default.
"""

import logging
import re

from tickets_batch.settings import Engine
from workers.engine_error import EngineError

log = logging.getLogger(__name__)

PRIORITIES: dict[Engine, int] = {"vllm": 1, "sglang": -(2**63)}

_OF_PRIORITY = re.compile(r"\bpriority\b", re.IGNORECASE)
# With other statuses "priority" alone may speak of the queue: SGLang puts requests out of a full one for a higher one.
_SWITCHED_OFF = re.compile(r"\bpriority\b[\w ]*\b(disabled|not enabled|not supported|unsupported)\b", re.IGNORECASE)
_BAD_REQUEST = frozenset({400, 422})


class BatchPriority:
    """Which priority the requests to one pool carry, as long as its server takes one; None: none."""

    def __init__(self, pool: str, engine: Engine) -> None:
        self._pool = pool
        self.value = PRIORITIES.get(engine)

    def switch_off(self) -> None:
        """The server refused a request with a priority, and answered the same one without."""
        if self.value is None:  # another request under way has found out before
            return
        self.value = None
        log.warning(
            "pool %s: the server takes no priority, so batch's requests carry none from now on and queue with the "
            "chat's: start vLLM with --scheduling-policy priority, SGLang with --enable-priority-scheduling",
            self._pool,
        )


def refuses_priority(status: int, error: EngineError | None) -> bool:
    """Whether this answer to a request with a priority seems to refuse it for that: the same may be sent without."""
    if error is None:
        return False
    status = error.status or status
    if status in _BAD_REQUEST:
        return error.param == "priority" or bool(_OF_PRIORITY.search(error.message))
    return status >= 400 and bool(_SWITCHED_OFF.search(error.message))
