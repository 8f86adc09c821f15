"""A wall clock that can be set while a process runs: Python imports this module by itself if its folder is on the path.
Every function by which the hub and its libraries read the wall clock in Python is shifted by the seconds in the file
`WRONG_CLOCK`, a double. The monotonic clock is unchanged, as when a real clock is set. C code is unchanged too: OpenSSL
checks certificates by the machine's clock."""

from __future__ import annotations

import datetime
import mmap
import os
import struct
import time
from pathlib import Path

SIZE = struct.calcsize("d")
REAL = datetime.datetime
SECONDS, NANOSECONDS = time.time, time.time_ns


def _opened() -> mmap.mmap:
    with Path(os.environ["WRONG_CLOCK"]).open("rb") as file:
        return mmap.mmap(file.fileno(), SIZE, prot=mmap.PROT_READ)


_SET = _opened()


def offset() -> float:
    """Return the seconds by which the clock is ahead."""
    seconds: float = struct.unpack("d", _SET[:SIZE])[0]
    return seconds


class AnyDatetime(type):
    """A metaclass: instances created by C code are of the real class, and count as instances of this class, too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, REAL)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, REAL)


class Datetime(REAL, metaclass=AnyDatetime):
    """A datetime class whose clock is shifted."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Datetime:
        return super().now(tz) + datetime.timedelta(seconds=offset())


time.time = lambda: SECONDS() + offset()
time.time_ns = lambda: NANOSECONDS() + int(offset() * 1e9)
datetime.datetime = Datetime  # type: ignore[misc]  # that is the point
