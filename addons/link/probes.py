"""Probes each server of the cloud, so that the hub knows of an outage within 6 s and of its end within some seconds.

The probes move the health table, together with what live requests show: `addons.link.link` reports what these see to
`connect_failed` and `suspect`, and hands in what cuts the connections to a server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from addons.link.connect_errors import Fault, fault_of
from addons.link.health import Cloud, ServerHealth
from addons.link.servers import Server
from addons.telemetry import metrics
from kube.concurrency.pulse import Pulse
from kube.http.client import Client, RawResponse, Unreachable
from kube.http.retry_after import ASKS, retry_after

PROBE_INTERVAL = 3.8
"""Seconds between probes of a server that is up; with the timeout this notices a black hole within 6 s.

Over HTTP/1.1 a probe is some 550 bytes, most of them headers, so a shorter interval would cost more than 150 bytes a
second. Over HTTP/2 a probe is some 150 bytes.
"""
PROBE_TIMEOUT = 1.9
"""Seconds in which a server must answer a probe, or send anything else: twice the round trip of a satellite link."""
RECOVERY_TIMEOUT = 6.0
"""The same for a server that is down, to which a probe opens a connection first: three more round trips, and when all
nodes come back at once their handshakes wait for each other."""
RECOVERY_INTERVAL = 1.0
"""Seconds between probes of a server that is down, or whose last answer was an error."""
PROMPT_PAUSE = 0.25
"""Seconds from a probe to the earliest next one, however many connections break under requests."""
LOG_INTERVAL = 60.0
"""Seconds between log lines about connections that fail for want of something on this node."""
PROBE_PATH = "/livez"
"""Small, answered without etcd, and open to every client by Kubernetes' default roles."""
PROBE_HEADERS = (("Audit-Id", "edgehub-probe"),)
"""kube-apiserver takes the ID of a request's audit events from its client, and repeats it in the answer.

An ID of the server's own is new in each answer. HPACK sends one that stays as one byte: a probe is a fifth smaller.
"""

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
        self._cloud = Cloud([], "priority")
        self._wanted: dict[str, asyncio.Event] = {}
        """Set when a server is to be probed at once, by the server's name."""
        self._last_began: dict[str, float] = {}
        """When the last probe that has ended began, by the server's name."""
        self._probed = Pulse()
        """Notified after each probe."""
        self._logged = float("-inf")

    def start(self, cloud: Cloud, client: Client) -> None:
        """Begin to probe the servers. `client` sends with the hub's identity."""
        self._cloud = cloud
        for health in cloud.servers:
            self._wanted[str(health.server)] = asyncio.Event()
            metrics.SERVER_UP.labels(str(health.server)).set(1)
            name = f"probe of {health.server}"
            self._tasks.append(asyncio.create_task(self._run(health, client), name=name))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    def connect_failed(self, health: ServerHealth, message: str) -> None:
        """Note that a live request could not open a connection; `message` holds what asyncio raised."""
        fault = fault_of(message)
        if fault is Fault.SERVER:
            self._failed(health, message)
        elif fault is not Fault.NONE:
            # Healthy connections to the server must stay, so this takes no server down. See `_is_own_fault`.
            if fault is Fault.NODE:
                health.node_failed = self._clock()
            else:
                health.resolver_failed = self._clock()
            metrics.CONNECT_FAILURES.labels(fault).inc()
            if self._clock() - self._logged >= LOG_INTERVAL:
                self._logged = self._clock()
                logger.warning(
                    "no connection to %s, through no fault of the server: %s", health.server, message
                )

    def suspect(self, health: ServerHealth) -> None:
        """Probe a server at once: a handshake failed, or a connection broke under a request."""
        if health.usable and (wanted := self._wanted.get(str(health.server))) is not None:
            wanted.set()

    async def confirm(self) -> bool:
        """Whether a server is up, by a probe that is sent now to each that counts as up."""
        asked = self._clock()
        suspects = [health for health in self._cloud.servers if health.usable]
        for health in suspects:
            self.suspect(health)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(
                2 * PROBE_TIMEOUT
            ):  # a probe that is under way may have begun too early
                while any(each.usable and not self._was_probed_since(each, asked) for each in suspects):
                    await self._probed.wait()
        return self._cloud.is_up

    def _was_probed_since(self, health: ServerHealth, asked: float) -> bool:
        return self._last_began.get(str(health.server), float("-inf")) >= asked

    def _failed(self, health: ServerHealth, reason: str) -> None:
        if health.failed(reason):
            self._went_down(health)

    async def _run(self, health: ServerHealth, client: Client) -> None:
        client = client.at(str(health.server))
        wanted = self._wanted[str(health.server)]
        while True:
            wanted.clear()
            began, pause = self._clock(), PROMPT_PAUSE
            try:
                answer = await self._probe(health, client, began)
                if answer is not None and answer.status in ASKS and not health.doubtful:
                    # Not before the second error: until then an outage would stay unknown.
                    pause = max(pause, retry_after(answer.headers) or 0.0)
            except Exception as error:
                # The task must live on: without its probe a server would stay up, or down, for good.
                logger.exception("the probe of %s failed", health.server)
                self._failed(health, str(error))
            self._last_began[str(health.server)] = began
            self._probed.notify()
            settled = health.usable and not health.doubtful
            await asyncio.sleep(pause)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout((PROBE_INTERVAL if settled else RECOVERY_INTERVAL) - PROMPT_PAUSE):
                    await wanted.wait()

    async def _probe(self, health: ServerHealth, client: Client, began: float) -> RawResponse | None:
        """The server's answer, noted; None where there was none."""
        timeout = PROBE_TIMEOUT if health.usable else RECOVERY_TIMEOUT
        try:
            answer = await client.relay("GET", PROBE_PATH, headers=PROBE_HEADERS, body=b"", timeout=timeout)
        except Unreachable as error:
            # On a full link the probe may wait in the queue while the server sends to other streams.
            is_late = isinstance(error.__cause__, TimeoutError) and health.usable
            if not (is_late and health.heard > began) and not self._is_own_fault(health, began):
                self._failed(health, _reason(error))
            return None
        self._answered(health, answer)
        return answer

    def _is_own_fault(self, health: ServerHealth, began: float) -> bool:
        """Whether a probe failed because the node could not open a connection.

        A name that cannot be resolved takes a server down all the same where no connection to it is open: nothing
        shows then that the server is there, and clients must be answered from copies.
        """
        if health.resolver_failed >= began:
            return health.connections > 0
        return health.node_failed >= began

    def _answered(self, health: ServerHealth, answer: RawResponse) -> None:
        if answer.status < 500:
            self._identified(health, refuses_node=answer.status == 401)
            self._succeeded(health)
        elif health.erred(f"it answers {answer.status}"):
            self._went_down(health)

    def _identified(self, health: ServerHealth, *, refuses_node: bool) -> None:
        """Note whether the server takes the node's identity, with which the probe came."""
        if health.refuses_node != refuses_node:
            health.refuses_node = refuses_node
            what = "does not accept" if refuses_node else "accepts"
            logger.warning("%s %s the node's identity", health.server, what)
            self._changed.notify()

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


def _reason(error: Unreachable) -> str:
    """Why there was no answer, in words for the operator."""
    cause = error.__cause__
    reason = str(cause or error) or ("no answer in time" if isinstance(cause, TimeoutError) else "no answer")
    if "ertificate" in reason:
        reason += (
            "; is it signed by the certificate-authority of the kubeconfig, for this address, and in date?"
        )
    return reason
