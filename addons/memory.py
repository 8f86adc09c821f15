"""Memory on a small node: the collector passes over what never is garbage, and what is free goes back to the system."""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Callable

TRIM_INTERVAL = 10.0
"""Seconds between returns of free memory: five milliseconds of a thread's time after a burst, else half of one."""


class Memory:
    """Modules, classes and addons are a hundred thousand objects: 50 to 90 ms of every full collection, for nothing.

    And what a burst of lists took glibc keeps for the next one: up to 12 MB of 130, of which a pod could live.
    """

    name = "edgehub-heap"

    def __init__(self, trim: Callable[[int], object] | None = None) -> None:
        """`trim` is malloc_trim of the C library; musl has none, and returns memory by itself."""
        self._trim = trim or getattr(ctypes.CDLL(None), "malloc_trim", None)
        self._trimming: asyncio.Task[None] | None = None

    def load(self, _loader: object) -> None:
        """The list of addons has imported everything, and no request was served yet."""
        gc.collect()
        gc.freeze()

    def running(self) -> None:
        if self._trim is not None:
            self._trimming = asyncio.create_task(self._return_memory(self._trim), name="free memory")

    def done(self) -> None:
        if self._trimming is not None:
            self._trimming.cancel()

    async def _return_memory(self, trim: Callable[[int], object]) -> None:
        while True:
            await asyncio.sleep(TRIM_INTERVAL)
            await asyncio.to_thread(trim, 0)
