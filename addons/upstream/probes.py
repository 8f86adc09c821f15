"""Probes each server of the cloud, so that the hub knows of an outage within 6 s and of its end within some seconds.

The probes move the health table, together with what live requests show. They know no mitmproxy: egress reports what it
sees to `failed`, and hands in what cuts the connections to a server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from addons.requests.headers import ANSWERED_HEADER, SERVER_HEADER
from addons.telemetry import metrics
from addons.upstream.health import Cloud, ServerHealth
from addons.upstream.servers import Server
from kube.concurrency.pulse import Pulse
from kube.http.client import Client, RawResponse, Unreachable

PROBE_INTERVAL = 3.8
"""Seconds between probes of a server that is up; with the timeout this notices a black hole within 6 s.

Over HTTP/1.1 a probe is some 550 bytes, most of them headers, so a shorter interval would cost more than 150 bytes a
second. Over HTTP/2 a probe is a third of that.
"""
PROBE_TIMEOUT = 1.9
"""Seconds in which a server must answer a probe, or send anything else: twice the round trip of a satellite link."""
RECOVERY_INTERVAL = 1.0
"""Seconds between probes of a server that is down, or whose last answer was an error."""
PROBE_PATH = "/livez"
"""Small, answered without etcd, and open to every client by Kubernetes' default roles."""

logger = logging.getLogger(__name__)


class Probes:
    """One task for each server. `changed` is notified when a server comes up or goes down."""

    def __init__(
        self, cut: Callable[[Server], int], changed: Pulse, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`cut` closes the connections to a server and returns their number. `clock` is monotonic."""
        self._cut = cut
        self._changed = changed
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, cloud: Cloud, client: Client) -> None:
        """Begin to probe the servers. `client` sends to the hub's own listener."""
        for health in cloud.servers:
            metrics.SERVER_UP.labels(str(health.server)).set(1)
            name = f"probe of {health.server}"
            self._tasks.append(asyncio.create_task(self._run(health, client), name=name))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    def failed(self, health: ServerHealth, reason: str) -> None:
        """Note that a server does not answer, as a probe or a live request has shown."""
        if health.failed(reason):
            self._went_down(health)

    async def _run(self, health: ServerHealth, client: Client) -> None:
        client = client.with_headers({SERVER_HEADER: str(health.server)})
        while True:
            began = self._clock()
            try:
                answer = await client.relay("GET", PROBE_PATH, headers=(), body=b"", timeout=PROBE_TIMEOUT)
                self._answered(health, answer)
            except Unreachable as error:
                # On a full link the probe may wait in the queue while the server sends to other streams.
                if health.heard <= began or not health.usable:
                    self.failed(health, str(error))
            except Exception as error:
                # The task must live on: without its probe a server would stay up, or down, for good.
                logger.exception("the probe of %s failed", health.server)
                self.failed(health, str(error))
            settled = health.usable and not health.doubtful
            await asyncio.sleep(PROBE_INTERVAL if settled else RECOVERY_INTERVAL)

    def _answered(self, health: ServerHealth, answer: RawResponse) -> None:
        if ANSWERED_HEADER not in answer.headers:
            self.failed(health, f"no answer ({answer.status})")
        elif answer.status < 500:
            self._succeeded(health)
        elif health.erred(f"it answers {answer.status}"):
            self._went_down(health)

    def _succeeded(self, health: ServerHealth) -> None:
        if health.succeeded():
            logger.info("%s is up again", health.server)
            metrics.SERVER_UP.labels(str(health.server)).set(1)
            self._changed.notify()

    def _went_down(self, health: ServerHealth) -> None:
        cut = self._cut(health.server)
        logger.warning("%s is down (%s); %d connections cut", health.server, health.reason, cut)
        metrics.SERVER_UP.labels(str(health.server)).set(0)
        metrics.UPSTREAM_CUT.labels(str(health.server)).inc(cut)
        self._changed.notify()
