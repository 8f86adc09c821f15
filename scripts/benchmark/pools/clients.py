"""Followers without a hub, for `scripts/bench --pool`: the hub's own reflector reads from a leader's peer port.

Each follower has its node's certificate and its own loopback address. All run in one process beside the bench. The
bench requests their state by a line on standard input, and gets a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from kube.errors import StatusError
from kube.http.client import ApiResponse, Client, Switched, Unreachable, WatchStream
from kube.http.transport.http2_connection import Http2Connection
from kube.reflector.list_watch import ListWatch
from kube.reflector.reflector import Reflector
from kube.reflector.state import State
from kube.requests.request_info import ResourceType
from kube.store.store import Change, Store
from tests.kube.support.cleartext import PooledSession
from tests.support.background import beside

SLICES = ListWatch(ResourceType("discovery.k8s.io", "v1", "endpointslices"))


@dataclass(frozen=True, slots=True)
class Caller:
    """A follower's node: its loopback address, and the files of its client certificate."""

    address: str
    certificate: str
    key: str


class PeerSession(PooledSession):
    """A session with one HTTP/2 connection over TLS to each leader, like a hub's."""

    scheme = "https"

    def __init__(self, caller: Caller, authority: str) -> None:
        super().__init__()
        self._address = caller.address
        self._tls = ssl.create_default_context(cafile=authority)
        self._tls.load_cert_chain(caller.certificate, caller.key)
        self._tls.set_alpn_protocols(["h2"])

    async def _connect(self, base: str) -> Http2Connection:
        peer = urlsplit(f"//{base}")
        assert peer.hostname is not None
        assert peer.port is not None
        _, made = await asyncio.get_running_loop().create_connection(
            Http2Connection, peer.hostname, peer.port, ssl=self._tls, local_addr=(self._address, 0)
        )
        return made


class Leaders:
    """A `kube.reflector.upstream.Upstream` that reads from one leader, and from the next one when it fails."""

    is_up = is_shared = True

    def __init__(self, session: PeerSession, urls: Sequence[str], store: Store) -> None:
        self._store = store
        self._clients = [Client(session, url, {}) for url in urls]
        self.at = 0
        """The index of the current leader."""

    is_elsewhere = True

    async def leaves_cloud(self) -> bool:
        """Return true always: followers read only from leaders."""
        return True

    def forget_version(self) -> None:
        """Do nothing: the cloud is never restored."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        accept: str,
        codings: str,
        resumes: bool = False,
    ) -> ApiResponse:
        unpaged = {name: text for name, text in query.items() if name != "limit"}
        version = str(self._store.newest_given)
        newest = {**unpaged, "resourceVersion": version, "resourceVersionMatch": "NotOlderThan"}
        return await self._clients[self.at].request(
            method, path, query=newest, accept=accept, codings=codings
        )

    @asynccontextmanager
    async def watch(
        self, path: str, *, query: Mapping[str, str], accept: str, timeout: float, codings: str
    ) -> AsyncIterator[WatchStream]:
        try:
            async with self._clients[self.at].watch(
                path, query=query, accept=accept, timeout=timeout, codings=codings
            ) as stream:
                yield stream
        except (StatusError, Unreachable) as error:
            self.at = (self.at + 1) % len(self._clients)
            raise Switched(str(error)) from error


class Follower:
    """One node's copy of the slices, with measurements, as a listener of its store."""

    def __init__(self, caller: Caller, authority: str, leaders: Sequence[str]) -> None:
        self._session = PeerSession(caller, authority)
        self.store = Store()
        self.leaders = Leaders(self._session, leaders, self.store)
        self.store.listen(self)
        self.reflector = Reflector(Client(self._session, leaders[0], {}), SLICES, self.store)
        self.reflector.upstream = self.leaders
        self.events = 0
        self.last = 0.0
        self.gap = 0.0
        """The longest time without an event, in seconds, since the bench last requested the state."""

    async def run(self, slots: asyncio.Semaphore) -> None:
        """Follow until cancelled. `slots` bounds the concurrent first lists."""
        async with slots:
            running = asyncio.create_task(self.reflector.run())
            while not self.store.complete:
                await self.store.next_update()
        try:
            await running
        finally:
            self._session.close()

    def changed(self, _change: Change) -> None:
        now = time.monotonic()
        if self.last:
            self.gap = max(self.gap, now - self.last)
        self.events, self.last = self.events + 1, now

    def advanced(self) -> None:
        """Ignore a bookmark."""

    def restarted(self) -> None:
        """Ignore the first list."""


def state(followers: Sequence[Follower]) -> dict[str, object]:
    """Return the combined state of all followers, and reset their gaps."""
    report = {
        "watching": sum(follower.reflector.state is State.WATCHING for follower in followers),
        "objects": min(len(follower.store) for follower in followers),
        "version": min(follower.store.version for follower in followers),
        "events": sum(follower.events for follower in followers),
        "gap": max(follower.gap for follower in followers),
        "lists": sum(follower.reflector.lists for follower in followers),
        "at": [sum(follower.leaders.at == number for follower in followers) for number in (0, 1)],
        "errors": sorted(
            {str(follower.reflector.error) for follower in followers if follower.reflector.error}
        ),
    }
    for follower in followers:
        follower.gap, follower.last = 0.0, 0.0
    return report


async def serve(given: Mapping[str, object], started_at_once: int = 4) -> None:
    """Start the followers, some at a time, and answer the bench until its input ends."""
    callers, leaders, authority = given["callers"], given["leaders"], given["authority"]
    assert isinstance(callers, list)
    assert isinstance(leaders, list)
    assert isinstance(authority, str)
    followers = [Follower(Caller(*caller), authority, leaders) for caller in callers]
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    slots = asyncio.Semaphore(started_at_once)
    async with beside(*(follower.run(slots) for follower in followers)):
        while await lines.readline():
            print(json.dumps(state(followers)), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(json.loads(Path(sys.argv[1]).read_text())))
