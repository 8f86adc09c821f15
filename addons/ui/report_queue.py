"""Makes long reports one after the other: a person or a script that asks for many costs the hub one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from addons.telemetry import metrics
from kube.errors import too_many_requests

MAX_WAITING = 8
"""Requests that wait for their report."""


class ReportQueue:
    """One report is made at a time; some requests wait for theirs, and the others are refused."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting = 0

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Wait until no other report is made; StatusError 429 where MAX_WAITING requests wait already."""
        if self._waiting >= MAX_WAITING:
            metrics.ADMIN_REFUSED.labels("turn").inc()
            raise too_many_requests("too many reports are being made", retry_after=1)
        self._waiting += 1
        try:
            await self._lock.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._lock.release()
