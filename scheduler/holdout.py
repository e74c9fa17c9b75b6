"""Which minutes of a pool are held out: batch stays at its floor in them, whatever the load. Pure.

Batch is at its floor exactly when the chat is busy, so a plain comparison would say that it helps. One minute in each
stretch of 1 / share minutes is drawn by a hash of the pool and the stretch: by chance, yet every scheduler draws the
same one, and none has to keep it.
"""

import hashlib
from datetime import datetime

MINUTE_SECONDS = 60.0


def is_held_out(pool: str, at: datetime, share: float) -> bool:
    """Whether the minute of the (aware) instant `at` is held out on this pool, when `share` (0 to 0.5) of them are."""
    if share <= 0:
        return False
    stretch_minutes = round(1 / share)
    stretch, minute = divmod(minute_of(at), stretch_minutes)
    digest = hashlib.blake2b(f"{stretch}".encode(), key=pool.encode(), digest_size=8, person=b"holdout")
    return int.from_bytes(digest.digest()) % stretch_minutes == minute


def minute_of(at: datetime) -> int:
    """The minute, counted from 1970, that an aware instant lies in."""
    return int(at.timestamp() // MINUTE_SECONDS)
