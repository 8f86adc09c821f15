"""Reads pod reports from the hubs of the pool's other nodes while the cloud is unreachable.

Reading begins when this hub loses the cloud. After the cloud is back it ends for each node when its last report has
ended, so hubs that reach the cloud exchange nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from addons.filters.inputs import PodReport
from addons.inputs.filter_inputs import FilterInputs
from addons.inputs.pod_reports import FRESH
from addons.link.health import Cloud
from addons.link.servers import Server
from addons.pool.peers.peer import PeerAnswer, PeerHub
from addons.pool.peers.peer_probes import Peers, ProbeRequest
from addons.pool.remote_reports.remote_pod_reports import RemotePodReports
from addons.pool.remote_reports.report_objects import MAX_REPORT_BYTES, POD_REPORTS
from kube.bounds import reached
from kube.concurrency.backoff import Backoff
from kube.concurrency.notifier import Notifier, completes_within, wait_for_any
from kube.http.client import Client
from kube.peers import LeaderHub
from kube.reflector.list_watch import ListWatch
from kube.reflector.reflector import Reflector
from kube.reflector.state import State
from kube.store.store import Store
from kube.wire.encoding import Encoding

LAST_RETRY = 3.0
"""Maximum base of the back-off, in seconds (up to twice as many with jitter), for a hub that does not answer. It is on
this node's own network."""
CHECK_INTERVAL = 5.0
"""Seconds between checks of which hubs to read from."""

logger = logging.getLogger(__name__)


class Neighbour:
    """Another node from whose hub this hub reads reports, until `close`."""

    def __init__(self, reports: RemotePodReports, peer: PeerHub, client: Client) -> None:
        """`client` sends requests with the hub's identity."""
        self.reports = reports
        self.peer = peer
        self.silent_since: float | None = None
        """When the node's hub became silent, by the caller's clock; None while it answers."""
        wanted, backoff = ListWatch(POD_REPORTS, encoding=Encoding.JSON), Backoff(last=LAST_RETRY)
        self.reflector = Reflector(client.at(str(peer.server)), wanted, reports.store, backoff)
        self.reflector.grew = self._check_list
        reports.flooded = self._leave
        self.reading = asyncio.create_task(self.reflector.run(), name=f"pod reports of {peer.server}")

    @property
    def is_heard(self) -> bool:
        return self.reflector.state is State.WATCHING and not self.reading.done()

    def close(self) -> None:
        self.reading.cancel()
        self.reports.close()

    def _check_list(self) -> None:
        if self.reflector.list_bytes > MAX_REPORT_BYTES:
            reached("words of another node")
            self._leave()

    def _leave(self) -> None:
        """Stop reading from a node that reports more pods than its bound. Its earlier reports stay, as for a silent
        node."""
        logger.warning("node %s reports on too many pods: its further reports are ignored", self.peer.node)
        self.reading.cancel()


class Neighbours:
    """The hubs of the pool's other nodes. Reading begins with `run`."""

    def __init__(
        self,
        port: int,
        peers: Peers,
        inputs: FilterInputs,
        stores: Callable[[], Iterable[Store]],
        cloud: Cloud,
    ) -> None:
        """`port` is the peer port of all hubs of the pool.

        `stores` returns the EndpointSlices and Endpoints that clients on this node read.
        """
        self._port = port
        self._peers = peers
        self._inputs = inputs
        self._stores = stores
        self._cloud = cloud
        self._clock = peers.clock
        self._hubs: dict[str, LeaderHub] = {}
        self._changed = Notifier()
        self._open: dict[str, Neighbour] = {}
        self._settled = float("-inf")
        """When reports that the cloud's slices already show were last ended, by `clock`."""
        inputs.refused = self._refuse

    def update(self, hubs: Iterable[LeaderHub]) -> None:
        """Set the hubs of the pool's other nodes. If several have one address, the first is used."""
        at_address = {hub.address: hub for hub in reversed(list(hubs))}
        self._hubs = {hub.node: hub for hub in at_address.values()}
        self._changed.notify()

    def describe(self) -> list[dict[str, object]]:
        """Return the state of each neighbour for the debug page."""
        return [
            {"node": node, "heard": exchange.is_heard, "words": sum(1 for _ in exchange.reports)}
            for node, exchange in sorted(self._open.items())
        ]

    async def run(self) -> None:
        """Read reports in outages, until cancelled."""
        try:
            while True:
                woken = (self._changed.wait(), self._cloud.changed.wait())
                self._refresh()
                await completes_within(CHECK_INTERVAL if self._open else None, wait_for_any(*woken))
        finally:
            for node in list(self._open):
                self._close(node)

    def _refresh(self) -> None:
        is_up, now = self._cloud.is_up, self._clock()
        settles = now - self._settled >= FRESH
        self._settled = now if settles else self._settled
        for node, exchange in list(self._open.items()):
            is_named = exchange.peer.server == self._server(node)
            if exchange.is_heard and is_named:
                exchange.silent_since = None
            elif not is_up or exchange.silent_since is None:
                exchange.silent_since = now
            elif now - exchange.silent_since >= FRESH:
                exchange.reports.end_superseded() if node in self._hubs else exchange.reports.forget()
            if settles:
                exchange.reports.settle(self._stores())
            if is_up and not any(True for _ in exchange.reports):
                self._close(node)
        for node in () if is_up else self._hubs.keys() - self._open:
            if (server := self._server(node)) is not None and str(server) not in self._addresses:
                self._begin(node, server)

    def _server(self, node: str) -> Server | None:
        hub = self._hubs.get(node)
        return Server("https", hub.address, self._port, node) if hub is not None else None

    @property
    def _addresses(self) -> set[str]:
        """Return the addresses of the nodes to read from. A node whose address is still in use for a former node waits
        until that one is closed."""
        return {str(exchange.peer.server) for exchange in self._open.values()}

    def _begin(self, node: str, server: Server) -> None:
        reports = RemotePodReports(node, self._inputs.changed, self._inputs.ask, self._newest, self._clock)
        peer = self._peers.use(self, server)
        self._open[node], self._inputs.reports[node] = Neighbour(reports, peer, self._peers.client), reports

    def _close(self, node: str) -> None:
        exchange = self._open.pop(node)
        exchange.close()
        del self._inputs.reports[node]
        self._peers.leave(self, exchange.peer.server)

    def wants(self, peer: PeerHub) -> ProbeRequest | None:
        """Request probes of a hub that is being read, so that a connection that failed silently is replaced."""
        exchange = self._open.get(peer.node)
        return ProbeRequest() if exchange is not None and exchange.is_heard else None

    def answered(self, peer: PeerHub, before: PeerAnswer) -> None:
        """Do nothing: the reports themselves come by a watch."""

    def failed(self, peer: PeerHub) -> None:
        """Do nothing: the watch ends with the connection, and its reflector retries."""

    def _newest(self) -> int:
        return max((store.version for store in self._stores()), default=0)

    def _refuse(self, namespace: str, report: PodReport) -> None:
        if (exchange := self._open.get(report.node)) is not None:
            exchange.reports.refuse(namespace, report)
