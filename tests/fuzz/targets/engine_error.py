"""An engine's answer that is no stream, with any status, heads and body: one finding that tells no secret."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.fuzz.target import Target
from tests.fuzz.targets.event_stream import KEY, TICKET, check_finding
from workers import symptoms
from workers.detail import Censor

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
STATUSES = (200, 204, 301, 307, 400, 401, 402, 403, 404, 408, 413, 422, 429, 500, 503, 529)
LONGEST_WAIT = timedelta(days=366 * 10_000)


def judge(data: bytes, folder: Path) -> None:
    """A byte for the status, then lines for the heads and the body."""
    status = STATUSES[(data[:1] or b"\0")[0] % len(STATUSES)]
    content_type, retry_after, location, body = (*data[1:].split(b"\n", 3), b"", b"", b"", b"")[:4]
    heads = {"content-type": content_type, "retry-after": retry_after, "location": location}
    headers = {name: value.decode("latin-1").strip() for name, value in heads.items() if value}
    found = symptoms.of_response(status, headers, body, now=NOW, clean=Censor(TICKET, KEY))
    check_finding(found)
    if found.retry_after_seconds is not None:
        assert found.retry_after_seconds >= 0
        assert found.retry_after_seconds < float("inf")


TARGET = Target(
    judge,
    seeds=(
        b'\x0capplication/json\n7\n\n{"error": {"message": "slow down", "type": "rate_limit_error", "code": "429"}}',
        b'\4text/plain\n\n\n{"object": "error", "message": "maximum context length is 2048", "code": 400}',
        b'\x0b\n\n\n{"detail": [{"loc": ["body", "messages", 0], "msg": "my parcel 4711", "input": "Rosemary Lane"}]}',
        b"\0text/html\n\n\n<html>login sk-live-31415926</html>",
        b"\2\n\nhttps://user:sk-live-31415926@elsewhere/x?key=1#y\n",
        b"\x0e\nMon, 30 Nov 2026 12:00:09 GMT\n\nbusy",
        b"\x0e\n1e999\n\n",
        b'\0application/json\n\n\n{"choices": [], "error": "my parcel 4711 never came to Rosemary Lane"}',
    ),
    words=('{"error": ', '"message": "', '"type": "', '"code": ', '"param": "model"', '"detail": ', '"loc": [',
           '"msg": "', "Rosemary", "sk-live-31415926", "context_length", "response_format", "Mon, 30 Nov 2026 12:00:09",
           " GMT", " +0000", "\\u", "\n"),
)  # fmt: skip
