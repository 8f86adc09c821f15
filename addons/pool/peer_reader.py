"""Reads the lists and watches of one shared source from a leader, or from the cloud where no leader serves.

A reflector reads through it. Versions are the cloud's everywhere, so a watch goes on at the next server from where it
was at the last one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol

from addons.pool.leaders import LeaderState
from addons.requests.headers import SERVER_HEADER
from kube.errors import StatusError
from kube.http.client import GZIP, RESPONSE_TIMEOUT, ApiResponse, Client, Switched, Unreachable, WatchStream
from kube.requests.request_info import ResourceType
from kube.store.reflector import Malformed

CLOUD_NAME = "cloud"
"""The cloud among the names of servers, which are else nodes."""
OPEN_TIMEOUT = 5.0
"""Seconds in which a leader must begin to answer a watch: it waits 3 s for a version that it does not have yet."""


class Chooser(Protocol):
    """Says which server the hub reads shared resources from: `addons.pool.pool.Pool`."""

    @property
    def has_leader(self) -> bool:
        """Whether a leader may be read from now."""

    async def server(self, reader: PeerReader, *, resumes: bool) -> LeaderState | None:
        """The leader to read from, None for the cloud. Returns when it may be read from.

        `resumes`: only a leader will do whose history may reach back to the reader's version.
        """

    def has_way_past(self, reader: PeerReader) -> bool:
        """Whether a server is there besides the leaders whose history is too short for a reader."""

    def failed(self, leader: LeaderState, why: str) -> None:
        """Note that a leader did not serve."""

    def reads(self, reader: PeerReader, server: str) -> None:
        """Note that a reader goes on to read from a server: the name of a node, or `cloud`."""


class PeerReader:
    """The `kube.store.upstream.Upstream` of one source."""

    def __init__(
        self, type_: ResourceType, cloud: Client, chooser: Chooser, version: Callable[[], int]
    ) -> None:
        """`cloud` sends through the hub's own listener with the hub's identity; `version` is the store's."""
        self.type = type_
        self.leader: LeaderState | None = None
        """Who was last asked; None for the cloud."""
        self.server = ""
        """The name of who was last asked, the node of a leader or `cloud`; "" where nobody was asked yet."""
        self.since = 0.0
        """When the reader went to this server, in Unix seconds."""
        self.why = ""
        """Why it went there, for people."""
        self._too_short: dict[LeaderState, int] = {}
        """The leaders that could not resume from a version, each with the version."""
        self._cloud = cloud
        self._chooser = chooser
        self._version = version

    def may_resume(self, leader: LeaderState) -> bool:
        """Whether the leader's history may reach back to the store. It does once the store has moved on."""
        return self._too_short.get(leader) != self._version()

    @property
    def is_up(self) -> bool:
        return self._chooser.has_leader

    async def request(
        self, method: str, path: str, *, query: Mapping[str, str], accept: str, codings: str = GZIP
    ) -> ApiResponse:
        """A page of a list from the cloud, or the whole list from a leader."""
        if "continue" not in query:
            while (leader := await self._next(resumes=False)) is not None:
                try:
                    return await self._client(leader).request(
                        method,
                        path,
                        query=self._as_new_as_known(query),
                        accept=accept,
                        timeout=RESPONSE_TIMEOUT,
                        codings=codings,
                    )
                except (StatusError, Unreachable) as error:
                    self._chooser.failed(leader, str(error))
        return await self._cloud.request(method, path, query=query, accept=accept, codings=codings)

    @asynccontextmanager
    async def watch(
        self, path: str, *, query: Mapping[str, str], accept: str, timeout: float, codings: str = GZIP
    ) -> AsyncIterator[WatchStream]:
        """An open watch. Switched when another server can go on after this one."""
        while (leader := await self._next(resumes=True)) is not None:
            async with AsyncExitStack() as stack:
                opening = self._client(leader).watch(
                    path, query=query, accept=accept, timeout=timeout, codings=codings
                )
                try:
                    async with asyncio.timeout(OPEN_TIMEOUT):
                        stream = await stack.enter_async_context(opening)
                except (StatusError, Unreachable, TimeoutError) as error:
                    self._left(leader, error)
                    continue
                try:
                    yield stream
                except (StatusError, Unreachable, Malformed) as error:
                    self._left(leader, error)
                    raise Switched(f"{leader.leader.node}: {error}") from error
                return
        opening = self._cloud.watch(path, query=query, accept=accept, timeout=timeout, codings=codings)
        async with opening as stream:
            yield stream

    def _left(self, leader: LeaderState, error: Exception) -> None:
        """A watch at the leader failed. 410, a history that is too short, is raised where nobody has a longer one."""
        if not isinstance(error, StatusError) or error.code != 410:
            self._chooser.failed(leader, str(error) or "no answer")
            return
        self._too_short[leader] = self._version()
        if not self._chooser.has_way_past(self):
            self._too_short.clear()
            raise error

    async def _next(self, *, resumes: bool) -> LeaderState | None:
        leader = await self._chooser.server(self, resumes=resumes)
        self.leader = leader
        self._chooser.reads(self, leader.leader.node if leader is not None else CLOUD_NAME)
        return leader

    def _client(self, leader: LeaderState) -> Client:
        return self._cloud.with_headers({SERVER_HEADER: str(leader.server)})

    def _as_new_as_known(self, query: Mapping[str, str]) -> dict[str, str]:
        """A list that is not older than the store, in one page, from what the leader holds."""
        whole = {name: text for name, text in query.items() if name != "limit"}
        return {
            **whole,
            "resourceVersion": str(self._version()),
            "resourceVersionMatch": "NotOlderThan",
        }
