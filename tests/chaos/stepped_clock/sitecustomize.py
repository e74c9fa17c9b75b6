"""Loaded by Python at the start of a process under test: its wall clock is off by what a file says, at any moment.

The file, named in CHAOS_CLOCK, holds one double in native order, in seconds. Only the wall clock is moved, as a step of
the machine's clock would: `time.time`, `time.time_ns`, `datetime.now` and `datetime.utcnow`; never the monotonic one.
"""

import ctypes
import datetime
import gc
import mmap
import os
import struct
import time
from typing import Any


def _install(path: str) -> None:
    with open(path, "r+b") as file:
        shared = mmap.mmap(file.fileno(), 8)
    real_time, real_time_ns, when = time.time, time.time_ns, datetime.datetime

    def offset() -> float:
        (seconds,) = struct.unpack("d", shared[:8])
        return float(seconds)

    def now(cls: Any, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        return cls.fromtimestamp(real_time() + offset(), tz)  # type: ignore[no-any-return]

    def utcnow(cls: Any) -> datetime.datetime:
        return now(cls, datetime.UTC).replace(tzinfo=None)

    time.time = lambda: real_time() + offset()
    time.time_ns = lambda: real_time_ns() + round(offset() * 1_000_000_000)
    # A class in C takes no attributes from Python, and a subclass in its place would be another type to everybody.
    (attributes,) = gc.get_referents(when.__dict__)
    attributes["now"], attributes["utcnow"] = classmethod(now), classmethod(utcnow)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(when))


if _path := os.environ.get("CHAOS_CLOCK"):
    _install(_path)
