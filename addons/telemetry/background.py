"""Tasks that run until the hub stops and that no caller awaits. A failure is logged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

from addons.telemetry import metrics

logger = logging.getLogger(__name__)


def background(work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
    """Start a task with this name, whose failure is logged. asyncio would log it only when the task is
    garbage-collected.
    """
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_log_failure)
    return task


def _log_failure(task: asyncio.Task[None]) -> None:
    if task.cancelled() or (error := task.exception()) is None:
        return
    metrics.HOOK_ERRORS.labels("edgehub-background", "task").inc()
    logger.critical("%s failed, and stays off until a restart", task.get_name(), exc_info=error)
