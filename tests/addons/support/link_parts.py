"""A link to one server that the test implements, with or without TLS, and the hub's requests over it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from addons.link.health import Cloud, ServerHealth
from addons.link.link import UpstreamManager
from addons.link.own_requests import OwnRequests
from addons.link.request_records import RequestRecords
from addons.link.servers import Server, parse_server
from addons.requests.caller import CredentialSource
from addons.telemetry.component_traffic import ComponentTraffic
from kube.http.kubeconfig import Cluster, Credentials, DataOrFile, User
from tests.cloud.pki import Authority
from tests.kube.support.http2_peer import Asked, Peer

AUTHORITY = Authority()
NODE = AUTHORITY.issue_node("n1")
LATER = 10.0
"""Seconds, more than any of these tests takes."""
LIMIT = 2**20


def credentials(*, token: str = "", trusted: Authority = AUTHORITY) -> Credentials:
    """The credentials of node n1, with a certificate."""
    user = User(DataOrFile(NODE.certificate), DataOrFile(NODE.key), DataOrFile(token.encode()))
    return Credentials(Cluster(authority=DataOrFile(trusted.certificate)), user)


def server_context(folder: Path, *, alpn: tuple[str, ...] = ("h2",)) -> ssl.SSLContext:
    context = AUTHORITY.server_context(folder, ["127.0.0.1"])
    context.set_alpn_protocols(list(alpn))
    return context


def answer(asked: Asked) -> None:
    asked.head(200)
    asked.data(b"of " + asked.fields[":path"].encode(), end=True)


def hold(asked: Asked) -> None:
    """Start a watch response with one event, and leave it open."""
    asked.head()
    asked.data(b"event")


class World:
    """The link, and the sessions of both identities."""

    def __init__(self, peer: Peer, own: Credentials) -> None:
        self.peer = peer
        self.traffic, self.records = ComponentTraffic(), RequestRecords()
        self.connect(parse_server(peer.url), own)

    def connect(self, server: Server, own: Credentials) -> None:
        """Make this server the hub's only one."""
        self.server, self.health = server, ServerHealth(server)
        self.link = UpstreamManager(Cloud([self.health], "priority"), own)
        self.lent = OwnRequests(self.link, CredentialSource.HUB, self.traffic, self.records)
        self.own = OwnRequests(self.link, CredentialSource.OWN, self.traffic, self.records)

    async def ask(
        self,
        target: str = "/x",
        *,
        token: str | None = None,
        at: str = "",
        method: str = "GET",
        body: bytes | None = None,
    ) -> bytes:
        """Return the body of a response, to the hub or to a token's user."""
        session, headers = (self.lent, []) if token is None else (self.own, [("Authorization", token)])
        url = at + target
        async with session.open(method, url, headers=headers, body=body, timeout=LATER) as response:
            return await response.read(LIMIT)


@asynccontextmanager
async def linked(peer: Peer, own: Credentials, tls: ssl.SSLContext | None = None) -> AsyncIterator[World]:
    """Yield the world while its server runs."""
    async with peer.serve(tls):
        world = World(peer, own)
        yield world
        world.link.close()
        await asyncio.sleep(0)
