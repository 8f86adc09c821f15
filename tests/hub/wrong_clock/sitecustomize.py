"""A wall clock that can be set while a process runs: Python imports this by itself where this folder is on its path.

Every way from Python to the wall clock that the hub and its libraries take is moved by as many seconds as the file
`WRONG_CLOCK` holds, a double. The monotonic clock stays, as it does when a clock is set. What C code reads for itself
stays too: OpenSSL looks at certificates by the machine's clock.
"""

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
    """Seconds that the clock is ahead."""
    seconds: float = struct.unpack("d", _SET[:SIZE])[0]
    return seconds


class AnyDatetime(type):
    """Instances that C code makes are of the real class, and pass as instances of this class, too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, REAL)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, REAL)


class Datetime(REAL, metaclass=AnyDatetime):
    """The method that reads the clock."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Datetime:
        return super().now(tz) + datetime.timedelta(seconds=offset())


time.time = lambda: SECONDS() + offset()
time.time_ns = lambda: NANOSECONDS() + int(offset() * 1e9)
datetime.datetime = Datetime  # type: ignore[misc]  # that is the point
