"""Concurrent work during a test, which ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def beside(*work: Coroutine[Any, Any, Any]) -> AsyncIterator[None]:
    """Run work during this block; at its end cancel and await it, whatever its outcome."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
