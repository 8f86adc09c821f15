"""Polls a local health service (SuperEdge's edge-health) for unhealthy nodes.

The service answers a GET with a JSON object: node name or IP address to {"normal": bool, ...}. The hub connects to it
directly, not through the link to the cloud, so that it works while the cloud is away.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import aiohttp
import orjson

from addons.telemetry import metrics

TIMEOUT = 5.0
"""Seconds for one answer, as in SuperEdge."""
STALE_ROUNDS = 3
"""Intervals for which the last answer stays valid while the service fails. SuperEdge drops it at the first failure, so
one lost answer brings every dead endpoint back.
"""
MAX_REPORT = 4 * 1024 * 1024
"""Maximum bytes of an answer: 10,000 nodes at 400 bytes, several times as much as edge-health sends for a node."""

logger = logging.getLogger(__name__)


class LocalHealthSource:
    """Polls the service every `interval` seconds, and calls `tell` with the unhealthy names and addresses when they
    change.
    """

    def __init__(self, url: str, interval: float, changed: Callable[[frozenset[str]], None]) -> None:
        self._url = url
        self._interval = interval
        self._changed = changed
        self._reported: frozenset[str] = frozenset()
        self._heard = 0.0
        self._failing = False

    async def run(self) -> None:
        """Poll until cancelled."""
        # The service is on this site, so proxies from the environment are ignored.
        timeout = aiohttp.ClientTimeout(total=TIMEOUT)
        async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
            while True:
                try:
                    self._accept(parse_health(await _fetch(session, self._url)))
                except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                    self._fail(error)
                await asyncio.sleep(self._interval)

    def _accept(self, unhealthy: frozenset[str]) -> None:
        if self._failing:
            logger.info("local health answers again")
        self._failing = False
        self._heard = time.monotonic()
        metrics.LOCAL_HEALTH_UP.set(1)
        self._publish(unhealthy)

    def _fail(self, error: Exception) -> None:
        metrics.LOCAL_HEALTH_FAILURES.inc()
        if not self._failing:
            logger.warning("local health does not answer: %r", error)
        self._failing = True
        if time.monotonic() - self._heard >= STALE_ROUNDS * self._interval:
            metrics.LOCAL_HEALTH_UP.set(0)
            self._publish(frozenset())

    def _publish(self, unhealthy: frozenset[str]) -> None:
        metrics.LOCAL_HEALTH_UNHEALTHY.set(len(unhealthy))
        if unhealthy != self._reported:
            self._reported = unhealthy
            self._changed(unhealthy)


def parse_health(body: bytes) -> frozenset[str]:
    """Return the names and addresses that are not normal. ValueError if the answer is malformed."""
    nodes = orjson.loads(body)
    if not isinstance(nodes, dict):
        raise ValueError("not a JSON object")
    for name, health in nodes.items():
        if not isinstance(health, dict) or not isinstance(health.get("normal"), bool):
            raise ValueError(f"{name!r} has no boolean 'normal'")
    return frozenset(name for name, health in nodes.items() if not health["normal"])


async def _fetch(session: aiohttp.ClientSession, url: str) -> bytes:
    async with session.get(url) as answer:
        if answer.status != 200:
            raise ValueError(f"status {answer.status}")
        body = bytearray()
        async for chunk in answer.content.iter_chunked(64 * 1024):
            body += chunk
            if len(body) > MAX_REPORT:
                raise ValueError(f"more than {MAX_REPORT} bytes")
        return bytes(body)
