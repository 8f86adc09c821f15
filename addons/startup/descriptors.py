"""Raises RLIMIT_NOFILE, and rate-limits the log of EMFILE."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections.abc import Callable
from typing import Any

from addons.telemetry import metrics
from addons.telemetry.log import Pace

DESCRIPTOR_LIMIT = 65_536
"""Soft limit on open descriptors that the hub sets at start, if the hard limit allows it."""

logger = logging.getLogger(__name__)


def raise_descriptor_limit() -> int:
    """Raise the process's soft limit on open descriptors as far as allowed. Return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTOR_LIMIT if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTOR_LIMIT)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft if soft != resource.RLIM_INFINITY else DESCRIPTOR_LIMIT
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def limit_accept_logs(loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.monotonic) -> None:
    """Log one line a minute, instead of a hundred a second, while no connection can be accepted.

    asyncio pauses accepting for a second after each such error, and reports each attempt.
    """
    others, pace = loop.get_exception_handler(), Pace(clock)

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not str(context.get("message", "")).startswith("socket.accept()"):
            (others or type(loop).default_exception_handler)(loop, context)
            return
        metrics.CONNECTIONS_REFUSED.labels("accept").inc()
        if pace.allows("accept"):
            logger.error("connections cannot be accepted: %s", context.get("exception"))

    loop.set_exception_handler(handle)
