"""Runs the hub, and records the cost of each callback of its event loop: `python -m tests.hub.support.pauses OPTIONS`.
The cost is the CPU time of the loop's thread, including garbage collection, and so does not depend on other load. A
thread samples the stack of a long callback."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import NamedTuple

FILE = "EDGEHUB_PAUSES"
"""The environment variable with the path of the file: a line of JSON for each callback over LONG, the worst last."""
LONG = 0.05
"""Seconds of CPU from which a callback is recorded."""
SAMPLE = 0.01
"""Seconds between two samples of a callback."""


class Pause(NamedTuple):
    """A long callback: seconds of CPU, of garbage collection within it, and of wall time, and its stack."""

    cpu: float
    collecting: float
    wall: float
    what: str

    def __str__(self) -> str:
        return f"{self.cpu:.3f} s of CPU ({self.collecting:.3f} collecting), {self.wall:.3f} s: {self.what}"


class Pauses:
    """Measure callbacks of the loop in the thread that created this object."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._thread = threading.get_ident()
        self._began = 0.0
        """When the running callback began, in monotonic seconds; 0 between two callbacks."""
        self._seen = ""
        self._collecting = 0.0
        """Seconds of CPU of garbage collections in the callback; negative start time while one runs."""
        self._run = asyncio.Handle._run

    def install(self) -> None:
        def measured(handle: asyncio.Handle) -> None:
            self._measured(handle)
            del handle  # a traceback may refer to this frame

        asyncio.Handle._run = measured  # type: ignore[assignment]  # the one place that every callback passes
        gc.callbacks.append(self._collection)
        threading.Thread(target=self._look_on, name="pauses", daemon=True).start()

    def _measured(self, handle: asyncio.Handle) -> None:
        if threading.get_ident() != self._thread:
            self._run(handle)
            return
        self._seen, self._collecting = "", 0.0
        self._began, began = time.monotonic(), time.thread_time()
        self._run(handle)
        del handle
        spent, wall = time.thread_time() - began, time.monotonic() - self._began
        self._began = 0.0
        if spent > LONG:
            with self._file.open("a") as lines:
                lines.write(json.dumps([spent, self._collecting, wall, self._seen or "one call of C"]) + "\n")

    def _collection(self, phase: str, _: dict[str, int]) -> None:
        if threading.get_ident() == self._thread:
            self._collecting += time.thread_time() * (1 if phase == "stop" else -1)

    def _look_on(self) -> None:
        while True:
            time.sleep(SAMPLE)
            if self._began and not self._seen and time.monotonic() - self._began > LONG:
                frame = sys._current_frames().get(self._thread)
                # `traceback.extract_stack` would cache the sources of all modules in the stack, 3 MB of memory.
                codes = [each.f_code for each, _ in itertools.islice(traceback.walk_stack(frame), 6)]
                self._seen = " < ".join(f"{Path(each.co_filename).stem}.{each.co_name}" for each in codes)


def read(file: Path) -> list[Pause]:
    """Return the long callbacks, the most expensive first."""
    lines = file.read_text().splitlines() if file.exists() else []
    return sorted((Pause(*json.loads(line)) for line in lines), reverse=True)


if __name__ == "__main__":
    from addons.command import main

    Pauses(Path(os.environ[FILE])).install()
    main(sys.argv[1:])
