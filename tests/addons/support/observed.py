"""Waits for conditions, and values of metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from typing import Any

from kube.concurrency.notifier import Notifier

STEP = 0.005
"""Seconds between two polls of a condition without notifications."""


async def until(true: Callable[[], object], seconds: float = 10.0) -> None:
    """Return once the condition holds; TimeoutError if it never does."""
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - the condition has no notification
            await asyncio.sleep(STEP)


async def ended(before: Set[asyncio.Task[Any]]) -> None:
    """Return once every task that started after `before` has ended."""
    current = asyncio.current_task()
    try:
        await until(lambda: not asyncio.all_tasks() - before - {current})
    except TimeoutError:
        raise AssertionError(f"still running: {asyncio.all_tasks() - before - {current}}") from None


def value_of(metric: Any) -> float:
    value: float = metric._value.get()
    return value


def notifications_of(notifier: Notifier) -> Callable[[], int]:
    """Return a function that returns the number of notifications since this call."""
    seen: list[None] = []
    notify = notifier.notify

    def note() -> None:
        seen.append(None)
        notify()

    notifier.notify = note  # type: ignore[method-assign]  # counts, and notifies
    return lambda: len(seen)
