"""Answers requests at the peer port: shared resources from this hub's own sources, unfiltered, and discovery."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from addons.pool.peer_admission import refused
from addons.pool.remote_reports.pod_report_server import PodReportServer
from addons.pool.remote_reports.report_objects import POD_REPORTS
from addons.requests.answers import Answer, ClientRequest, ClientStream
from addons.requests.caller import Caller, CredentialSource
from addons.requests.cloud_identity import HUB_IDENTITY
from addons.requests.route_decision import PEER_PROBE_PATH, peer_refusal
from addons.rules.shared_kinds import unfiltered_list_watch
from addons.telemetry import metrics
from addons.telemetry.labels import HUB, group_resource_label
from addons.views.serving import FUTURE_WAIT, Serving
from addons.views.sources import Sources
from kube.errors import StatusError, forbidden, too_large_version, too_many_requests, unavailable
from kube.requests.request_info import RequestInfo, ResourceType
from kube.store.watcher import Watcher

MAX_REQUESTS_PER_NODE = 256
"""Concurrent requests of one node, open watches included. A hub needs one for each shared resource and encoding."""

PLAIN_WATCH = 60
"""Maximum seconds of a watch of complete objects, as a YurtHub opens it.

A YurtHub selects its leader only when it opens a watch. A leader that is cut off from the cloud does not learn that
another one was elected, so without this limit the watch would not end.
"""


class PeerWatch(NamedTuple):
    """An open watch at the peer port."""

    node: str
    type: ResourceType
    watcher: Watcher


class PeerServing:
    """Serves the pool while this hub leads. `addons.pool.peer_admission` has authorized the caller."""

    def __init__(
        self,
        sources: Sources,
        serving: Serving,
        leads: Callable[[], bool],
        shares: Callable[[ResourceType], bool],
        reports: PodReportServer | None = None,
        discovery: Callable[[str], Awaitable[Answer | None]] | None = None,
    ) -> None:
        """`leads` returns whether this hub leads its pool now, `shares` whether the pool shares a resource.

        `words` are the reports of this node's kubelet, served under any leader. `discovery` returns the cloud's answer
        to a path, or None if it is unknown.
        """
        self._sources = sources
        self._serving = serving
        self._leads = leads
        self._shares = shares
        self._reports = reports
        self._discovery = discovery
        self._open: set[PeerWatch] = set()
        self._active: Counter[str] = Counter()
        """The number of requests of each node, open watches included."""
        self._may_read: Callable[[str, ResourceType], bool] = lambda _node, _type: True
        """The predicate of the last `keep_only`, which may be called while a request still waits for its version."""

    async def answer(self, wanted: ClientRequest, stream: ClientStream) -> Answer | None:
        """Return the complete answer to a list; serve a watch until its end and return None. StatusError for any other
        request."""
        self._check(wanted.info)
        with self._counted(wanted.peer):
            if wanted.info.type is None:
                return await self._discovered(wanted.info.path)
            if wanted.info.type == POD_REPORTS and self._reports is not None:
                with self._noting(wanted.peer, POD_REPORTS) as note:
                    return await self._reports.answer(wanted, stream, note)
            return await self._answer(wanted, stream)

    def close(self) -> None:
        if self._reports is not None:
            self._reports.close()

    @contextmanager
    def _counted(self, node: str) -> Iterator[None]:
        """Count a request of a node; StatusError 429 beyond MAX_REQUESTS_PER_NODE, because each watch costs the leader
        every event."""
        if self._active[node] >= MAX_REQUESTS_PER_NODE:
            error = too_many_requests("too many requests of this node at the peer port", retry_after=1)
            raise refused("too many", error)
        self._active[node] += 1
        try:
            yield
        finally:
            self._active[node] -= 1
            if not self._active[node]:
                del self._active[node]

    async def _discovered(self, path: str) -> Answer:
        if self._discovery is None or (answer := await self._discovery(path)) is None:
            raise StatusError(404, "NotFound", f"this hub has no copy of {path}")
        return answer

    async def _answer(self, wanted: ClientRequest, stream: ClientStream) -> Answer | None:
        assert wanted.route.read is not None
        assert wanted.route.representation is not None
        type_, version = wanted.route.read.type, wanted.route.read.version
        source = self._sources.get(
            HUB_IDENTITY, unfiltered_list_watch(type_, wanted.route.representation.encoding)
        )
        with source.in_use():
            try:
                # A version that this hub gave in a list may be newer than any event of the source.
                await source.ready(FUTURE_WAIT, version if version > source.store.newest_given else 0)
            except StatusError as error:
                if source.store.complete and source.store.version < version:
                    raise too_large_version(version, source.store.version) from None
                # The cloud's refusal of this hub does not concern the follower's rights.
                raise unavailable(f"this leader has no copy: {error.message}", retry_after=1) from None
            return await self._serve(wanted, stream)

    def keep_only(self, may_read: Callable[[str, ResourceType], bool]) -> None:
        """End all watches except those of nodes and resources that `may_read` permits: their clients resume at other
        servers.

        The same predicate applies to watches that open later.
        """
        self._may_read = may_read
        for watch in list(self._open):
            self._end_unless_wanted(watch)

    def _end_unless_wanted(self, watch: PeerWatch) -> None:
        if not self._may_read(watch.node, watch.type):
            watch.watcher.end()

    def watchers(self) -> Counter[str]:
        """Return the number of open watches of each node."""
        return Counter(watch.node for watch in self._open)

    async def _serve(self, wanted: ClientRequest, stream: ClientStream) -> Answer | None:
        """Serve the request from the hub's own unfiltered view."""
        type_, read = wanted.info.type, wanted.route.read
        assert type_ is not None
        assert read is not None
        if not wanted.reads_differences:
            read = read._replace(timeout_seconds=min(read.timeout_seconds or PLAIN_WATCH, PLAIN_WATCH))
        own = replace(
            wanted, caller=Caller(CredentialSource.HUB), component=HUB, route=wanted.route._replace(read=read)
        )
        with self._noting(wanted.peer, type_) as note:
            return await self._serving.answer(own, stream, note)

    @contextmanager
    def _noting(self, node: str, type_: ResourceType) -> Iterator[Callable[[Watcher], None]]:
        """Register a node's watch while this context is open; yield the function that receives its watcher."""
        opened: list[PeerWatch] = []
        gauge = metrics.PEER_WATCHERS.labels(group_resource_label(type_.group, type_.resource))

        def note(watcher: Watcher) -> None:
            opened.append(PeerWatch(node, type_, watcher))
            self._open.update(opened)
            gauge.inc()
            self._end_unless_wanted(opened[-1])

        try:
            yield note
        finally:
            self._open.difference_update(opened)
            gauge.dec(len(opened))

    def _check(self, info: RequestInfo) -> None:
        refusal = peer_refusal(info)
        if refusal is not None:
            reason, error = refusal
            raise error if info.path == PEER_PROBE_PATH else refused(reason, error)
        if info.type == POD_REPORTS and self._reports is not None:
            return
        if info.type is not None and not self._shares(info.type):
            raise refused("resource", forbidden(f"the pool does not share {info.type.group_resource}"))
        if not self._leads():
            raise refused("no leader", unavailable("this hub does not lead its pool", retry_after=1))
