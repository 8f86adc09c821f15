"""Reads the lists and watches of one shared source from a leader, or from the cloud if no leader serves them.

A reflector uses it as its upstream. Versions are the cloud's everywhere, so a watch resumes at the next server from its
last version.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol

from addons.pool.peers.peer import PeerHub
from addons.rules.shared_kinds import is_opt_in, unfiltered_list_watch
from addons.views.source import Source
from kube.errors import HISTORY_RESTARTED, StatusError
from kube.http.client import GZIP, RESPONSE_TIMEOUT, ApiResponse, Client, Switched, Unreachable, WatchStream
from kube.reflector.history_verifier import HistoryDiverged
from kube.reflector.list_pages import Malformed
from kube.requests.request_info import ResourceType

CLOUD_NAME = "cloud"
"""The name of the cloud among the names of servers; all other names are nodes."""
OPEN_TIMEOUT = 5.0
"""Seconds, beyond the link's round trips, in which a leader must begin to answer a watch. A leader waits 3 s for a
version that it does not have yet."""


class Chooser(Protocol):
    """Chooses the server from which the hub reads shared resources: `addons.pool.leader_selector.LeaderSelector`."""

    @property
    def has_leader(self) -> bool:
        """Whether a leader is usable now."""

    @property
    def is_alone(self) -> bool:
        """Whether this hub reads from no other hub and no other hub reads from it."""

    async def server(self, reader: PeerReader, *, resumes: bool) -> PeerHub | None:
        """Wait until the reader may read from a server; return that peer, or None for the cloud.

        `resumes`: select only leaders whose history may reach back to the reader's version.
        """

    def can_bypass(self, reader: PeerReader) -> bool:
        """Whether a server is available whose history reaches back to the reader's version."""

    def leave(self, peer: PeerHub, why: str) -> None:
        """Stop reading from a peer that failed to serve."""

    def reads(self, reader: PeerReader, server: str) -> None:
        """Record that a reader now reads from a server: the name of a node, or `cloud`."""


class PeerReader:
    """The `kube.reflector.upstream.Upstream` of one source."""

    def __init__(
        self, type_: ResourceType, cloud: Client, chooser: Chooser, version: Callable[[], int]
    ) -> None:
        """`cloud` sends requests with the hub's identity; `version` returns the store's resourceVersion."""
        self.type = type_
        self.peer: PeerHub | None = None
        """The leader of the last request; None for the cloud."""
        self.server = ""
        """The server of the last request: the node of a leader, or `cloud`; "" before the first request."""
        self.since = 0.0
        """Unix seconds at which the reader changed to this server."""
        self.why = ""
        """The reason of that change, for logs and the debug page."""
        self.resumes = False
        """Whether the last request needed a server that can resume from the store's version."""
        self._too_short: dict[PeerHub, int] = {}
        """The leaders whose history was too short to resume from a version, each with that version."""
        self._cloud = cloud
        self._chooser = chooser
        self._version = version
        self._is_unproved = False
        """Whether the store has a leader's state, and the cloud has not yet proved that its history is the same."""
        self._may_be_older = False
        """Whether the next list may be older than the store."""

    def may_resume(self, peer: PeerHub) -> bool:
        """Whether the leader's history may reach back to the store's version. After a 410 that is so once the store has
        advanced."""
        return self._too_short.get(peer) != self._version()

    def describe(self) -> dict[str, str]:
        """Return the reader's state for the debug page."""
        return {
            "resource": self.type.group_resource,
            "server": self.server,
            "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.since)),
            "why": self.why,
        }

    @property
    def is_up(self) -> bool:
        return self._chooser.has_leader

    @property
    def is_elsewhere(self) -> bool:
        return self.peer is not None or self.server != CLOUD_NAME

    @property
    def is_shared(self) -> bool:
        return not self._chooser.is_alone

    async def leaves_cloud(self) -> bool:
        """Select the server of the next watch, and return whether it is a leader.

        If it is the cloud, the caller has the cloud prove its history: a leader reports a restored cloud to its own
        readers only.
        """
        self._is_unproved = await self._next(resumes=True) is not None
        return self._is_unproved

    def forget_version(self) -> None:
        self._may_be_older = True

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        accept: str,
        codings: str = GZIP,
        resumes: bool = False,
    ) -> ApiResponse:
        """Request a page of a list from the cloud, or the complete list from a leader."""
        while "continue" not in query and (peer := await self._next(resumes=resumes)) is not None:
            try:
                answer = await self._client(peer).request(
                    method,
                    path,
                    query=self._as_new_as_known(query),
                    accept=accept,
                    timeout=RESPONSE_TIMEOUT,
                    codings=codings,
                )
            except (StatusError, Unreachable) as error:
                self._chooser.leave(peer, str(error))
            else:
                self._may_be_older = False
                if not resumes:
                    self._too_short.pop(peer, None)  # it can go on from what it lists
                return answer
        answer = await self._cloud.request(method, path, query=query, accept=accept, codings=codings)
        self._is_unproved = self._may_be_older = False
        return answer

    @asynccontextmanager
    async def watch(
        self, path: str, *, query: Mapping[str, str], accept: str, timeout: float, codings: str = GZIP
    ) -> AsyncIterator[WatchStream]:
        """Open a watch. Raise Switched if another server can continue it, which must first prove its history.

        The former leader may have answered a list, or names, before it learnt of a restore that the next one knows.
        """
        proved = self.peer
        while (peer := await self._next(resumes=True)) is not None:
            if peer is not proved:
                raise Switched(f"{peer.node} has not verified its history yet")
            async with AsyncExitStack() as stack:
                opening = self._client(peer).watch(
                    path, query=query, accept=accept, timeout=timeout, codings=codings
                )
                try:
                    async with asyncio.timeout(OPEN_TIMEOUT + peer.health.timeouts.distance):
                        stream = await stack.enter_async_context(opening)
                        if not stream.coding:
                            await self._check_reached(peer, path, query, accept)
                except (StatusError, Unreachable, TimeoutError) as error:
                    self._left(peer, error)
                    continue
                try:
                    yield stream
                except (StatusError, Unreachable, Malformed) as error:
                    self._left(peer, error)
                    raise Switched(f"{peer.node}: {error}") from error
                return
        if self._is_unproved:
            raise Switched("switching from a leader to the cloud")
        opening = self._cloud.watch(path, query=query, accept=accept, timeout=timeout, codings=codings)
        async with opening as stream:
            yield stream

    async def _check_reached(self, peer: PeerHub, path: str, query: Mapping[str, str], accept: str) -> None:
        """Raise StatusError or Unreachable if a leader without our codings, such as a YurtHub, is behind the store's
        version. Like kube-apiserver it accepts a watch from a newer version and stays silent, but answers a list with
        504."""
        named = {
            "limit": "1",
            "resourceVersion": query["resourceVersion"],
            "resourceVersionMatch": "NotOlderThan",
        }
        await self._client(peer).request("GET", path, query=named, accept=accept)

    def _left(self, peer: PeerHub, error: Exception) -> None:
        """Handle a failed watch at a leader. Re-raise a 410 for a too short history if no other server has a longer
        one."""
        if not isinstance(error, StatusError) or error.code != 410:
            self._chooser.leave(peer, str(error) or "no answer")
            return
        if error.message == HISTORY_RESTARTED:
            self._may_be_older = True
            raise HistoryDiverged(f"{peer.node}: {error}") from error
        self._too_short[peer] = self._version()
        if not self._chooser.can_bypass(self):
            self._too_short.clear()
            raise error

    async def _next(self, *, resumes: bool) -> PeerHub | None:
        self.resumes = resumes
        peer = await self._chooser.server(self, resumes=resumes)
        self.peer = peer
        self._is_unproved |= peer is not None
        self._chooser.reads(self, peer.node if peer is not None else CLOUD_NAME)
        return peer

    def _client(self, peer: PeerHub) -> Client:
        return self._cloud.at(str(peer.server))

    def _as_new_as_known(self, query: Mapping[str, str]) -> dict[str, str]:
        """Return the query of a list in one page from the leader's copy that is not older than the store."""
        unlimited = {name: text for name, text in query.items() if name != "limit"}
        return {
            **unlimited,
            "resourceVersion": "0" if self._may_be_older else str(self._version()),
            "resourceVersionMatch": "NotOlderThan",
        }


def why_moved(reader: PeerReader, server: str, order: Sequence[PeerHub]) -> str:
    """Return the reason why a reader changed to another server, for logs."""
    former = reader.server
    if not former:
        return "it is the first choice" if server != CLOUD_NAME else "no other server serves it"
    if former == CLOUD_NAME:
        return "it serves, so the cloud need not"
    peer = next((peer for peer in order if peer.node == former), None)
    if peer is None:
        return f"{former} is no longer named"
    if peer.failure:
        return f"{former} failed: {peer.failure}"
    if peer.age:
        return f"{former} has no cloud"
    if not reader.may_resume(peer):
        return f"the history of {former} is too short"
    if server == CLOUD_NAME:
        return f"{former} no longer serves it"
    return f"it comes before {former}"


class SharedSources:
    """The running sources that hubs of a pool can share."""

    def __init__(
        self, sources: Iterable[Source], further: Callable[[], Collection[ResourceType]] = tuple
    ) -> None:
        """`further` returns the resources that the rules add to the shared ones."""
        self.sources = sources
        self._further = further

    def may_have(self, source: Source) -> bool:
        """Whether a pool can share a source."""
        wanted = source.list_watch
        if source.user or wanted != unfiltered_list_watch(wanted.type, wanted.encoding):
            return False
        return not is_opt_in(wanted.type) or wanted.type in self._further()

    def readers(self) -> Iterator[tuple[Source, PeerReader]]:
        """Yield each shareable source with its reader."""
        for source in self.sources:
            reader = source.reflector.upstream
            if isinstance(reader, PeerReader):
                yield source, reader
