"""Keeps the hub small: excludes long-lived objects from garbage collection, and returns memory to the system after a
burst."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import time

from addons.telemetry.background import background

MAPPED_FROM = 128 * 1024
"""Bytes from which an allocation is its own mapping, which returns to the system when freed.

glibc begins with this number, and raises it to the size of each mapping that is freed: after the first large list it
would take lists from the heap and fragment it. Setting the number keeps it fixed. After 50 lists at once and 20
relayed ones, the hub has 88 MB with this number and one heap, 93 with one of the two, and 97 with neither. Calling
malloc_trim as well saves only 1 MB.
"""
M_MMAP_THRESHOLD = -3
M_ARENA_MAX = -8
"""The numbers of `malloc.h` of glibc."""
ARENAS = "MALLOC_ARENA_MAX"
"""The environment variable with glibc's number of heaps. A heap for each thread would keep free memory for that thread
only."""


COLLECT_INTERVAL = 1.0
"""Seconds between collections of young objects, if there are any.

With Python's own thresholds, the garbage of 1,000 broken connections, 70,000 objects, was collected at once, in 0.2 s.
"""
FULL_INTERVAL = 10.0
"""Minimum seconds between two full collections.

One examines all live objects since the start: 0.1 s of CPU for 100,000 objects on a busy machine. It finds little,
because ended parts drop their references.
"""
FULL_COLLECTION_SHARE = 0.01
"""Maximum share of a core that full collections take, however many objects are alive."""
THRESHOLDS = (2_000, 5, 1_000_000)
"""When Python collects by itself: after so many new objects, then after so many collections of the previous generation.
Never all generations."""


class Memory:
    """Freezes the objects of the start, and has one heap, without large allocations.

    Modules, classes and addons are a hundred thousand objects, which would cost every full collection 50 to 90 ms. The
    start itself collects nothing: two thousand of these objects are garbage, 0.3 MB, and finding them takes as long.
    """

    name = "edgehub-memory"

    def __init__(self) -> None:
        self._collecting: asyncio.Task[None] | None = None

    def load(self, _loader: object) -> None:
        """Freeze now: the list of addons has imported every module, and no request was served yet.

        From here on Python collects garbage, which `addons.command` has disabled until now.
        """
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)
        gc.enable()
        library = ctypes.CDLL(None)
        if hasattr(library, "mallopt"):  # musl has none, and returns memory by itself
            library.mallopt(M_MMAP_THRESHOLD, MAPPED_FROM)
            if ARENAS not in os.environ:
                library.mallopt(M_ARENA_MAX, 1)

    def running(self) -> None:
        self._collecting = background(collect_regularly(), "garbage")

    def done(self) -> None:
        if self._collecting is not None:
            self._collecting.cancel()


async def collect_regularly() -> None:
    """Collect young objects, and now and then all, until cancelled.

    The live objects of the first full collection are frozen, once: sources, views and watches of the node's components,
    a third of the objects that a later collection would examine. Reference counts still free them; only cycles stay.
    """
    loop = asyncio.get_running_loop()
    next_full, is_settled = loop.time() + FULL_INTERVAL, False
    while True:
        await asyncio.sleep(COLLECT_INTERVAL)
        _, lately, since_full = gc.get_count()
        if since_full and loop.time() >= next_full:
            began = time.thread_time()
            gc.collect()
            if not is_settled:
                gc.freeze()
                is_settled = True
            next_full = loop.time() + max(FULL_INTERVAL, (time.thread_time() - began) / FULL_COLLECTION_SHARE)
        elif lately:  # thousands of objects were created since the last time
            gc.collect(1)
