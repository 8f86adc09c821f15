"""Accesses the disk for the event loop: no caller waits long, and a failing disk is counted, and logged once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Protocol

from addons.telemetry import metrics
from kube.disk.database import Batch, Disk, DiskError
from kube.disk.writer import DISK_TIMEOUT, DiskWriter

RETRY = 5.0
"""Seconds from a failure of the disk to the next attempt."""
USED_STEP = 3600
"""Seconds by which a time of last use may be outdated on disk, because each write costs a transaction."""

logger = logging.getLogger(__name__)


class Waiting(Protocol):
    """A table with changes that wait for the disk."""

    is_durable: bool

    def close(self) -> Batch | None:
        """Stop writing, and return the pending changes for the process's last write."""


class DiskAccess:
    """The disk, its thread, and the tables that are written asynchronously."""

    def __init__(self, disk: Disk, writer: DiskWriter, clock: Callable[[], float] = time.time) -> None:
        """`clock` returns wall time, which continues over a restart but may be wrong: see `addons.offline.garbage`."""
        self.disk = disk
        self.writer = writer
        self.clock = clock
        self.tables: dict[Waiting, None] = {}
        self.on_loss: list[Callable[[], None]] = []
        """Called when the database had to be set aside, so that all rows are lost."""
        self.on_write: list[Callable[[Batch], None]] = []
        self._lost = 0
        self._failing = False
        self.loading: set[asyncio.Task[None]] = set()
        """The tasks that load data at the start."""

    @property
    def is_failing(self) -> bool:
        """Whether the disk refused the last write."""
        return self._failing

    def is_recent(self, used: int) -> bool:
        """Whether a time of last use on disk is recent enough. A time in the future counts as outdated: a clock was
        wrong."""
        return 0 <= self.clock() - used < USED_STEP

    async def load(self, loading: Coroutine[None, None, None]) -> None:
        """Load data at the start. Wait DISK_TIMEOUT at most: a slow disk delivers it later."""
        task = asyncio.create_task(loading, name="load from disk")
        self.loading.add(task)
        task.add_done_callback(self.loading.discard)
        await asyncio.wait((task,), timeout=DISK_TIMEOUT)

    async def rows(self, table: str) -> Mapping[str, bytes | None]:
        """Wait for the rows of a table; None stands for a damaged row."""
        while True:
            rows = await self.guard(partial(self.disk.rows, table))
            if rows is not None:
                return rows
            await asyncio.sleep(RETRY)

    async def ask[T](self, work: Callable[[], T]) -> T | None:
        """Like `guard`, for a client that waits: None also if the disk takes longer than DISK_TIMEOUT."""
        try:
            async with asyncio.timeout(DISK_TIMEOUT):
                return await self.guard(work)
        except TimeoutError:
            metrics.CACHE_WRITE_ERRORS.inc()
            logger.warning("the disk has not answered for %g s", DISK_TIMEOUT)
            return None

    async def guard[T](self, work: Callable[[], T]) -> T | None:
        """Run blocking work on the disk and return its result; None if the disk fails, which is counted, and logged
        once."""
        try:
            return await self.writer.do(work)
        except DiskError as error:
            metrics.CACHE_WRITE_ERRORS.inc()
            if not self._failing:
                logger.error("the disk cannot be used, the hub continues without it: %s", error)
            self._failing = True
        except Exception:
            # A bug of the hub. The result None tells the caller that nothing was written.
            metrics.CACHE_WRITE_ERRORS.inc()
            logger.exception("work on the disk failed")
        finally:
            if self._lost != self.disk.lost:
                self._lost = self.disk.lost
                for listener in self.on_loss:
                    listener()
        return None

    async def write(self, *batches: Batch, is_durable: bool = False) -> bool:
        """Write each batch as a transaction; return False if one failed. Only a successful write proves that the disk
        works again."""

        def work() -> bool:
            for batch in batches:
                self.disk.write(batch, is_durable=is_durable)
            return True

        if not await self.guard(work):
            return False
        if self._failing:
            logger.info("the disk can be used again")
        self._failing = False
        for batch in batches:
            for listener in self.on_write:
                listener(batch)
        return True

    def close(self) -> None:
        """Write the pending changes, as far as the disk manages in CLOSE_TIMEOUT: first those of durable tables."""
        for task in self.loading:
            task.cancel()
        tables = sorted(self.tables, key=lambda table: not table.is_durable)
        batches = [(batch, table.is_durable) for table in tables if (batch := table.close()) is not None]

        def last() -> None:
            for batch, is_durable in batches:
                try:
                    self.disk.write(batch, is_durable=is_durable)
                except DiskError as error:
                    logger.warning("lost at shutdown, not written to disk: %s", error)
            self.disk.close()

        self.writer.close(last)
