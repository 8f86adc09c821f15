"""The followers of a pool in one process: real reflectors and the real choice of a server, with servers in memory.
Nothing opens a socket, so tests may use a virtual clock: a pool of forty nodes takes one second per virtual minute."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, cast

import orjson

from addons.link.servers import Server
from addons.pool.leader_selector import LeaderSelector
from addons.pool.peer_reader import SharedSources
from addons.pool.peers.own_peer import OwnPeer
from addons.pool.peers.peer import PROBE_INTERVAL
from addons.pool.peers.peer_probes import Peers
from addons.pool.pool_config import PoolConfig, Role
from addons.requests.headers import AGE_HEADER
from addons.views.serving import FUTURE_WAIT
from addons.views.source import Source
from kube.errors import expired, too_large_version
from kube.http.client import ApiResponse, RawResponse, Unreachable, WatchStream
from kube.peers import LeaderHub
from kube.reflector.list_watch import ListWatch
from kube.reflector.reflector import Reflector
from kube.requests.request_info import ResourceType
from kube.store.store import Store
from kube.wire.encoding import Encoding
from tests.kube.support.answering import AnsweringClient, Asked

SERVICES = ResourceType("", "v1", "services")
PORT = 10269
START = 7.7
"""Seconds within which the followers of a pool start; not a multiple of the probe interval."""
FIRST_VERSION = 1000
CLOUD = ""
"""The name of the cloud among the servers; the others are named by their URLs."""


class Link(Enum):
    UP = "it is answered"
    REFUSED = "it is refused at once"
    SWALLOWED = "nothing comes back"


type Stream = asyncio.Queue[bytes | Exception]


class Opened(NamedTuple):
    node: str
    since: int
    """The version after which the watch sends events."""
    stream: Stream


@dataclass
class PoolServer:
    """The cloud, or a leader: it has every published change."""

    link: Link = Link.UP
    version: int = FIRST_VERSION
    """The version of the only object. A leader's differs from the cloud's between a restore and the leader's own
    list."""
    oldest: int = 0
    """The version at which its history starts."""
    begun: list[tuple[float, str]] = field(default_factory=list)
    """The start of each list and watch, by the loop's clock, and its node."""
    lists: int = 0
    """The number of served lists, except those of a single object."""
    streams: list[Opened] = field(default_factory=list)
    """The open watches."""

    async def reach(self, timeout: float) -> None:
        """Wait until a request has reached the server; raise Unreachable otherwise."""
        if self.link is Link.REFUSED:
            raise Unreachable("refused")
        if self.link is Link.SWALLOWED:
            await asyncio.sleep(timeout)
            raise Unreachable("no answer")

    def cut(self, node: str = "") -> int:
        """Abort the watches of a node, or all."""
        found = [each for each in self.streams if node in ("", each.node)]
        for each in found:
            each.stream.put_nowait(Unreachable("broken off"))
        return len(found)

    def publish(self, version: int) -> None:
        """Send the change to each watcher, except watchers at a newer version."""
        self.version = version
        for each in self.streams:
            if version > each.since:
                each.stream.put_nowait(self.event(version))

    def restart(self, version: int) -> None:
        """List the objects of a restored cloud: the history ends, and with it every watch."""
        self.version = self.oldest = version
        for each in self.streams:
            each.stream.put_nowait(expired("the cluster's resource versions went backwards"))

    def event(self, version: int) -> bytes:
        """Return the watch event that changes the object to a version."""
        return orjson.dumps({"type": "MODIFIED", "object": self.document(version)}) + b"\n"

    def document(self, version: int) -> dict[str, Any]:
        named = {"namespace": "n", "name": "one", "resourceVersion": str(version)}
        return {"apiVersion": "v1", "kind": "Service", "metadata": named}

    def fail(self, link: Link) -> None:
        """Stop serving: refuse new requests, and abort open ones."""
        self.link = link
        if link is Link.REFUSED:
            self.cut()

    @property
    def readers(self) -> list[str]:
        return sorted({each.node for each in self.streams})


class Pool:
    """The cloud, a leader, another node that may be elected, and followers that read one shared resource."""

    def __init__(self, size: int) -> None:
        self.leader, self.next_leader = LeaderHub("leader", "10.0.0.1"), LeaderHub("next", "10.0.0.2")
        self.config = PoolConfig((self.leader,), (SERVICES,), is_shared=True)
        self.cloud, self.leading, self.leading_next = PoolServer(), PoolServer(), PoolServer()
        self.servers = {
            CLOUD: self.cloud,
            f"https://{self.leader.address}:{PORT}": self.leading,
            f"https://{self.next_leader.address}:{PORT}": self.leading_next,
        }
        self.offline: set[str] = set()
        """The nodes whose probes report the cloud as down; they send it no other requests."""
        names = [f"node-{number}" for number in range(size)]
        self.members = [self.leader.node, self.next_leader.node, *names]
        self.followers = [Follower(self, name) for name in names]

    @property
    def version(self) -> int:
        return self.cloud.version

    def publish(self) -> None:
        """Change the object: every server that follows the cloud sends the event to its watchers."""
        was, version = self.version, self.version + 1
        for server in self.servers.values():
            if server.version == was:
                if server.link is Link.UP:
                    server.publish(version)
                else:
                    server.version = version

    def elect(self, role: Role, config: PoolConfig) -> None:
        """Notify every node of the pool's leaders and members. A node knows the others while the pool shares
        something."""
        members = self.members if config.is_shared else ()
        for each in self.followers:
            each.selector.update(role, config, members)

    def lose_the_cloud(self) -> None:
        """Let the cloud refuse all requests, and notify all nodes."""
        self.cloud.fail(Link.REFUSED)
        self.offline.update(self.members)

    async def find_the_cloud(self, within: float) -> None:
        """Restore the cloud, and notify one node after another."""
        self.cloud.link = Link.UP
        for each in random.sample(self.followers, len(self.followers)):
            self.offline.discard(each.name)
            each.reflector.recovered()
            await asyncio.sleep(within / len(self.followers))

    def restore(self, version: int) -> None:
        """Restore the cloud from a backup of this version. No leader has noticed yet."""
        self.cloud.version = version
        self.cloud.cut()

    @property
    def are_current(self) -> bool:
        """Return True if every copy equals the cloud's, except for the latest changes."""
        return all(
            each.store.complete and 0 <= self.version - each.store.version <= 1 for each in self.followers
        )

    @property
    def lists(self) -> int:
        return sum(each.reflector.lists for each in self.followers)


class Follower:
    """A node of the pool: the attributes of a source that `LeaderSelector` reads, with a real reflector and store."""

    def __init__(self, pool: Pool, name: str) -> None:
        self.name, self.user = name, ""
        self.client = NodeClient(pool, name)
        self.list_watch = ListWatch(SERVICES, encoding=Encoding.JSON)
        self.store = Store()
        self.reflector = Reflector(self.client, self.list_watch, self.store)
        as_source, clock = cast(Source, self), asyncio.get_running_loop().time
        self.peers = Peers(self.client, lambda server: self._cut(pool, server), clock)
        self.selector = LeaderSelector(
            *(OwnPeer(name, PORT), self.peers, SharedSources([as_source])),
            *(lambda: name not in pool.offline, clock),
        )
        self.reflector.upstream = self.selector.reader_of(as_source)

    def _cut(self, pool: Pool, server: Server) -> int:
        return pool.servers[str(server)].cut(self.name)

    async def run(self) -> None:
        await asyncio.gather(self.peers.run(), self.selector.run(), self.reflector.run())


class NodeClient(AnsweringClient):
    """A node's requests to the servers of the pool, in memory."""

    def __init__(self, pool: Pool, node: str, server: str = CLOUD) -> None:
        super().__init__()
        self._pool, self._node, self._name = pool, node, server

    def at(self, base_url: str) -> NodeClient:
        return NodeClient(self._pool, self._node, base_url)

    @property
    def _server(self) -> PoolServer:
        return self._pool.servers[self._name]

    async def answer_relayed(self, asked: Asked) -> RawResponse:
        await self._server.reach(asked.timeout)
        return RawResponse(404, {AGE_HEADER: "0"}, b"")

    async def answer(self, asked: Asked) -> ApiResponse:
        await self._begin(asked.timeout)
        wanted, server = asked.query, self._server
        server.lists += wanted.get("limit") != "1"
        await self._wait_for(int(wanted.get("resourceVersion", "0")))
        meta = {"resourceVersion": str(server.version)}
        items = [server.document(server.version)]
        listed = {"apiVersion": "v1", "kind": "ServiceList", "metadata": meta, "items": items}
        return ApiResponse(Encoding.JSON, orjson.dumps(listed))

    @asynccontextmanager
    async def watch(
        self, path: str, *, query: Mapping[str, str], accept: str, timeout: float, codings: str = ""
    ) -> AsyncIterator[WatchStream]:
        await self._begin(timeout)
        since = int(query["resourceVersion"])
        if self._name != CLOUD:
            await self._wait_for(since)
        if since < self._server.oldest:
            raise expired(f"too old resource version: {since}")
        opened = Opened(self._node, since, asyncio.Queue())
        for version in range(since + 1, self._server.version + 1):
            opened.stream.put_nowait(self._server.event(version))
        self._server.streams.append(opened)
        try:
            yield WatchStream(Encoding.JSON, _pieces(opened.stream))
        finally:
            self._server.streams.remove(opened)

    async def _wait_for(self, version: int) -> None:
        """Wait for a version that the server has not reached, like kube-apiserver: it accepts the watch and sends
        nothing."""
        if version > self._server.version:
            await asyncio.sleep(FUTURE_WAIT)
        if version > self._server.version:
            raise too_large_version(version, self._server.version)

    async def _begin(self, timeout: float) -> None:
        if self._name == CLOUD and self._node in self._pool.offline:
            raise Unreachable("the cloud cannot be reached")
        await self._server.reach(timeout)
        self._server.begun.append((asyncio.get_running_loop().time(), self._node))


async def _pieces(stream: Stream) -> AsyncIterator[bytes]:
    while not isinstance(piece := await stream.get(), Exception):
        yield piece
    raise piece


@asynccontextmanager
async def pool_of(size: int) -> AsyncIterator[Pool]:
    """Build a pool whose followers all read from its leader, with one object that changes every second. The followers
    start at different times, so each probes the leader at its own times."""
    pool = Pool(size)
    pool.elect(Role.FOLLOWER, pool.config)
    async with started(pool, within=START):
        await asyncio.sleep(PROBE_INTERVAL)
        assert len(pool.leading.readers) == size
        assert not pool.cloud.begun
        yield pool


@asynccontextmanager
async def started(pool: Pool, within: float = 0.0) -> AsyncIterator[None]:
    """Run the followers of a pool; they start one after the other within some seconds."""
    tasks = [asyncio.create_task(_publish_always(pool))]
    try:
        for each in pool.followers:
            tasks.append(asyncio.create_task(each.run()))
            await asyncio.sleep(within / len(pool.followers))
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _publish_always(pool: Pool) -> None:
    while True:
        await asyncio.sleep(1.0)
        pool.publish()
