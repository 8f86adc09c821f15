"""Probes each silent server of the cloud, so that the hub notices an outage within 6 s, and a recovery soon.

Probes update the health table together with live requests: `addons.link.link` reports these by `connect_failed` and
`suspect`, and sets the callback that closes a server's connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable

from addons.link.health import Cloud, Condition, ServerHealth
from addons.link.servers import Server
from addons.link.uplinks.uplink import Fault, fault_of
from addons.telemetry import metrics
from addons.telemetry.background import background
from addons.telemetry.log import Pace
from kube.concurrency.notifier import Notifier, completes_within
from kube.http.client import Client, RawResponse, Unreachable
from kube.http.retry_after import THROTTLING_STATUSES, retry_after

RECOVERY_INTERVAL = 1.0
"""Seconds between probes of a server that is down, or whose last answer was an error."""
SHORTEST_WAIT = 0.001
"""Minimum seconds of a wait: timers may fire slightly early, and the remainder would make a busy loop."""
SPARE_INTERVAL = 600.0
"""Seconds between probes of an uplink that is needed only when a preferred one fails.

A spare uplink may cost money by the byte, and a probe opens a connection, 6 KB. An uplink in use is probed at normal
intervals.
"""
MIN_PROBE_GAP = 0.25
"""Minimum seconds between two probes, however many connections break during requests."""
PROBE_PATH = "/livez"
"""Path of probes: small, answered without etcd, and allowed for all clients by Kubernetes' default roles."""

logger = logging.getLogger(__name__)


class Probing:
    """The probing of one server."""

    task: asyncio.Task[None]

    def __init__(self, health: ServerHealth) -> None:
        self.health = health
        self.name = str(health.server)
        self.wanted = asyncio.Event()
        """Set when the server must be probed at once."""
        self.began = float("-inf")
        """Monotonic time at which the last completed probe began."""
        self.pong: asyncio.Future[float] | None = None
        """Future of the last ping's answer."""


class Probes:
    """Runs one probing task for each server."""

    def __init__(
        self,
        cloud: Cloud,
        cut: Callable[[Server], int],
        ping: Callable[[ServerHealth], asyncio.Future[float] | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`cloud` has the servers to probe. `cut` closes the connections to a server and returns their number. `ping`
        sends a ping of a few bytes over one of them and returns its answer; None if it cannot. `clock` returns
        monotonic seconds.
        """
        self._cloud = cloud
        self._cut = cut
        self._ping = ping
        self._clock = clock
        self._client: Client | None = None
        self._probing: dict[str, Probing] = {}
        """The probing of each server, by the server's name."""
        self.probed = Notifier()
        """Notified after each probe."""
        self._pace = Pace(clock)

    def start(self, client: Client) -> None:
        """Begin to probe the servers of `cloud`. `client` sends with the hub's identity."""
        self._client = client
        for health in self._cloud.servers:
            self.begin(health)

    def begin(self, health: ServerHealth) -> None:
        """Begin to probe one more server, after `start`."""
        assert self._client is not None
        probing = Probing(health)
        self._probing[probing.name] = probing
        metrics.SERVER_UP.labels(probing.name).set(health.usable)
        run = self._run(probing, self._client.at(probing.name))
        probing.task = background(run, f"probe of {probing.name}")

    def end(self, health: ServerHealth) -> None:
        """Stop probing a server."""
        name = str(health.server)
        self._probing.pop(name).task.cancel()
        for metric in (metrics.SERVER_UP, metrics.ROUND_TRIP):
            with contextlib.suppress(KeyError):
                metric.remove(name)

    def close(self) -> None:
        for probing in self._probing.values():
            probing.task.cancel()
        self._probing.clear()

    def connect_failed(self, health: ServerHealth, message: str) -> None:
        """Record that a live request could not open a connection; `message` is asyncio's error."""
        fault = fault_of(message)
        if fault is Fault.SERVER:
            self._failed(health, message)
        elif fault is not Fault.NONE:
            # Does not mark the server as down: healthy connections to it must stay. See `_is_own_fault`.
            if fault is Fault.NODE:
                health.node_failed = self._clock()
            else:
                health.resolver_failed = self._clock()
            metrics.CONNECT_FAILURES.labels(fault).inc()
            if self._pace.allows(fault):
                logger.warning("no connection to %s, not the server's fault: %s", health.server, message)

    def suspect(self, health: ServerHealth) -> None:
        """Probe a server at once, because a handshake failed or a connection broke during a request."""
        if health.usable and (probing := self._probing.get(str(health.server))) is not None:
            probing.wanted.set()
            if probing.pong is not None and not probing.pong.done():
                probing.pong.set_exception(ConnectionResetError("a new probe replaces the ping"))

    async def confirm(self) -> bool:
        """Probe now each server that counts as up, and return whether one is."""
        since = self._clock()
        usable = {str(path.server) for path in self._cloud.paths if path.usable}
        suspects = [probing for name, probing in self._probing.items() if name in usable]
        for suspect in suspects:
            self.suspect(suspect.health)
        # A running probe may have begun too early to count, so allow for two.
        longest = 2 * max((suspect.health.silence for suspect in suspects), default=0.0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest):
                while any(suspect.health.usable and suspect.began < since for suspect in suspects):
                    await self.probed.wait()
        return self._cloud.is_up

    def _failed(self, health: ServerHealth, reason: str) -> None:
        if health.failed(reason):
            self._went_down(health)

    async def _run(self, probing: Probing, client: Client) -> None:
        health = probing.health
        while True:
            if not probing.wanted.is_set() and await self._pinged(probing):
                await self._until_due(probing, self._clock())
                continue
            probing.wanted.clear()
            health.is_erring = False
            began, pause = self._clock(), MIN_PROBE_GAP
            try:
                answer = await self._probe(health, client, began)
                if answer is not None and answer.status in THROTTLING_STATUSES and not health.doubtful:
                    # Honour Retry-After only after a second error, when the server counts as down: until then an outage
                    # must be noticed soon.
                    pause = max(pause, retry_after(answer.headers) or 0.0)
            except Exception as error:
                # The task must survive: without probes the server's state would never change again.
                logger.exception("the probe of %s failed", health.server)
                self._failed(health, str(error))
            if health.timeouts.round_trip is not None:
                metrics.ROUND_TRIP.labels(probing.name).set(health.timeouts.round_trip)
            probing.began = began
            self.probed.notify()
            await asyncio.sleep(pause)
            await self._until_due(probing, began)

    async def _pinged(self, probing: Probing) -> bool:
        """Ping a server that is up without errors, and return whether it answered. Return False for any other server:
        it needs a probe.
        """
        health = probing.health
        if health.condition is not Condition.UP or health.doubtful or health.is_erring:
            return False
        probing.pong = self._ping(health)
        if probing.pong is None:
            return False
        try:
            health.timeouts.measured(await await_answer(probing.pong, health, self._clock))
        except Unreachable as error:
            self._failed(health, str(error))
            return False
        except ConnectionResetError:
            return False
        return True

    async def _until_due(self, probing: Probing, began: float) -> None:
        """Return when the server must be probed again. `began`: when its last probe began."""
        health = probing.health
        retry_at = self._clock() + RECOVERY_INTERVAL - MIN_PROBE_GAP
        while (left := self._due(health, began, retry_at) - self._clock()) > 0:
            # A request, or a failover to this server, may make a probe due earlier.
            if await completes_within(
                max(min(left, health.timeouts.patience), SHORTEST_WAIT), probing.wanted.wait()
            ):
                return

    def _due(self, health: ServerHealth, began: float, retry_at: float) -> float:
        """Return when to probe a server whose last probe began at `began`; `retry_at` if it must be soon."""
        is_settled = health.usable and not health.doubtful
        if (is_settled or health.condition is Condition.DOWN) and self._cloud.is_spare(health):
            return began + SPARE_INTERVAL
        if not is_settled:
            return retry_at
        # While live requests get 5xx, other answers do not replace a probe.
        return health.due(began if health.is_erring else max(began, health.last_received))

    async def _probe(self, health: ServerHealth, client: Client, began: float) -> RawResponse | None:
        """Probe a server, record the result, and return its answer; None if it sent none."""
        try:
            answer = await send_probe(client, health, PROBE_PATH, (), self._clock)
        except Unreachable as error:
            is_late = isinstance(
                error.__cause__, TimeoutError
            )  # the server answered other requests meanwhile
            if not is_late and not self._is_own_fault(health, began):
                self._failed(health, _reason(error))
            return None
        self._answered(health, answer)
        return answer

    def _is_own_fault(self, health: ServerHealth, began: float) -> bool:
        """Whether a probe failed because the node could not open a connection.

        A name that cannot be resolved still marks a server as down if no connection to it is open: then nothing shows
        that it is alive, and clients must be answered from copies.
        """
        if health.resolver_failed >= began:
            return health.connections > 0
        return health.node_failed >= began

    def _answered(self, health: ServerHealth, answer: RawResponse) -> None:
        if answer.status < 500:
            self._identified(health, refuses_node=answer.status == 401)
            self._succeeded(health)
        elif health.note_error(f"it answers {answer.status}"):
            self._went_down(health)

    def _identified(self, health: ServerHealth, *, refuses_node: bool) -> None:
        """Record whether the server accepts the node's identity, with which the probe was sent."""
        if health.refuses_node != refuses_node:
            health.refuses_node = refuses_node
            what = "does not accept" if refuses_node else "accepts"
            logger.warning("%s %s the node's identity", health.server, what)
            self._cloud.changed.notify()

    def _succeeded(self, health: ServerHealth) -> None:
        if health.succeeded():
            logger.info("%s is up again", health.server)
            metrics.SERVER_UP.labels(str(health.server)).set(1)
            self._cloud.changed.notify()

    def _went_down(self, health: ServerHealth) -> None:
        cut = self._cut(health.server)
        logger.warning("%s is down (%s); %d connections cut", health.server, health.reason, cut)
        metrics.SERVER_UP.labels(str(health.server)).set(0)
        metrics.UPSTREAM_CUT.labels(health.server.url).inc(cut)
        self._cloud.changed.notify()


async def await_answer[T](asking: asyncio.Future[T], health: ServerHealth, clock: Callable[[], float]) -> T:
    """Await an answer. Unreachable if the server is silent for longer than its timeouts allow.

    Any byte from the server on any connection extends the wait: on a saturated link an answer is queued behind other
    data.
    """
    began = clock()
    try:
        while not asking.done():
            left = max(began, health.last_received) + health.silence - clock()
            if left <= 0:
                raise Unreachable("no answer in time")
            await asyncio.wait({asking}, timeout=max(left, SHORTEST_WAIT))
        return asking.result()
    finally:
        asking.cancel()


async def send_probe(
    client: Client,
    health: ServerHealth,
    path: str,
    headers: Iterable[tuple[str, str]],
    clock: Callable[[], float],
) -> RawResponse:
    """Send a probe, and return the answer. Unreachable if none arrives within the server's timeouts; caused by a
    TimeoutError if the server answered other requests meanwhile.
    """
    longest = 2 * health.timeouts.opening + health.silence
    asking = asyncio.create_task(
        client.relay("GET", path, headers=headers, body=b"", timeout=longest),
        name=f"probe of {health.server}",
    )
    return await await_answer(asking, health, clock)


def _reason(error: Unreachable) -> str:
    """Return why there was no answer, as a text for the operator."""
    reason = str(error.__cause__ or error) or "no answer"
    if "ertificate" in reason and not isinstance(error.__cause__, FileNotFoundError):
        reason += (
            "; is it signed by the certificate-authority of the kubeconfig, for this address, and in date?"
        )
    return reason
