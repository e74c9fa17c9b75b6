"""Server-sent events out of the bytes of a response, as the model servers use them: data alone counts."""

MAX_EVENT_BYTES = 256 * 1024
MAX_STREAM_BYTES = 8 * 1024 * 1024


class OversizedStream(Exception):
    """The stream is longer than any answer could be; the message says by which measure."""


class EventParser:
    """Feed it bytes as they come; it gives the data of each event that they complete.

    Lines may end in LF, CRLF or CR, wherever the bytes are cut. Comments and fields other than `data` are skipped, and
    several `data` lines of one event are joined with a line feed. Raises OversizedStream past its two bounds.
    """

    __slots__ = ("_data", "_data_bytes", "_max_event_bytes", "_max_stream_bytes", "_pending", "_stream_bytes")

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES, max_stream_bytes: int = MAX_STREAM_BYTES) -> None:
        self._pending = b""  # the beginning of a line whose end has not come yet
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._stream_bytes = 0
        self._max_event_bytes = max_event_bytes
        self._max_stream_bytes = max_stream_bytes

    def feed(self, received: bytes) -> list[bytes]:
        """The data of the events that these bytes complete."""
        self._stream_bytes += len(received)
        if self._stream_bytes > self._max_stream_bytes:
            raise OversizedStream(f"the stream is longer than {self._max_stream_bytes} bytes")
        text = self._pending + received
        held = b"\r" if text.endswith(b"\r") else b""  # it may be the first half of a CRLF
        lines = text[: len(text) - len(held)].splitlines(keepends=True)
        unended = lines.pop() if lines and not lines[-1].endswith((b"\n", b"\r")) else b""
        self._pending = unended + held
        events = self._take(lines)
        if self._data_bytes + len(self._pending) > self._max_event_bytes:
            raise OversizedStream(f"an event is longer than {self._max_event_bytes} bytes")
        return events

    def close(self) -> list[bytes]:
        """The data of an event that the stream's end completes, where its last line or blank line is missing."""
        lines, self._pending = [self._pending, b""], b""
        return self._take(lines)

    def _take(self, lines: list[bytes]) -> list[bytes]:
        events = []
        for ended in lines:
            line = ended.rstrip(b"\r\n")
            if not line:
                if self._data:
                    events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                    self._data = []
                    self._data_bytes = 0
            elif line.startswith(b"data:"):
                data = line[6:] if line.startswith(b"data: ") else line[5:]
                self._data.append(data)
                self._data_bytes += len(data) + 1
        return events
