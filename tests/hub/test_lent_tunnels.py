"""The peer port of a lending hub refuses requests for anything but a tunnel to its servers."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

from tests.cloud.pki import Authority, Credential
from tests.hub.support.lone_links import LoneLinks, lone_links, until

TARGET = "cloud.example:6443"
PATIENCE = 20.0
"""Seconds that a response, or the close of a connection, may take."""


class PeerClient:
    """A client of the lender's peer port, with the certificate of a node or none."""

    def __init__(self, pool: LoneLinks) -> None:
        self._pool = pool
        self.lender, self.borrower = pool.members
        self._calls = 0

    def open(self, credential: Credential | None, *, alpn: str = "http/1.1") -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=str(self._pool.folder / "ca.pem"))
        context.check_hostname = False
        context.set_alpn_protocols([alpn])
        if credential is not None:
            self._calls += 1
            context.load_cert_chain(*credential.write(self._pool.folder, f"caller-{self._calls}"))
        plain = socket.create_connection((self.lender.address, self._pool.port), PATIENCE)
        return context.wrap_socket(plain)

    def say(self, said: bytes, credential: Credential | None = None, *, alpn: str = "http/1.1") -> bytes:
        """Send bytes; return the response until the hub closes the connection."""
        with self.open(credential or self.borrower.credential, alpn=alpn) as conn:
            conn.sendall(said)
            return read_all(conn)

    def tunnel(self) -> ssl.SSLSocket:
        conn = self.open(self.borrower.credential)
        conn.sendall(connect())
        assert conn.recv(4096) == b"HTTP/1.1 200 Connection established\r\n\r\n"
        return conn


def connect(target: str = TARGET, extra: str = "") -> bytes:
    return f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{extra}\r\n".encode()


def read_all(conn: ssl.SSLSocket) -> bytes:
    found = b""
    try:
        while piece := conn.recv(65536):
            found += piece
    except (ssl.SSLError, ConnectionError):
        pass
    return found


def status_of(answer: bytes) -> int:
    """Return the status of one response, which is a Status without anything after it."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b'"kind": "Status"' in body or b'"kind":"Status"' in body, answer
    assert answer.count(b"HTTP/1.1 ") == 1, "one answer alone"
    return int(head.split()[1])


def attacks(pool: LoneLinks) -> None:
    knocker, authority = PeerClient(pool), pool.authority
    stranger, foreigner = authority.issue_node("island-9"), Authority("foreign").issue_node("island-2")
    smuggled = b"GET /api/v1/secrets HTTP/1.1\r\nHost: x\r\n\r\n"
    for said, who, status in (
        # Another target, another caller, another identity.
        (connect("127.0.0.1:22"), None, 403),
        (connect("cloud.example:22"), None, 403),
        (connect("169.254.169.254:80"), None, 403),
        (connect(f"127.0.0.1:{knocker.lender.hub.port}"), None, 403),
        (connect(), stranger, 403),
        (connect(), foreigner, 401),
        (connect(), authority.issue_admin(), 403),
        (connect(extra="Authorization: Bearer x\r\n"), None, 401),
        (connect(extra="Impersonate-User: admin\r\n"), None, 401),
        # Malformed, or followed by bytes that the hub or the server might take for another request.
        (connect() + smuggled, None, 400),
        (connect("127.0.0.1:22") + smuggled, None, 400),
        (connect("cloud.example"), None, 400),
        (connect("cloud.example:0"), None, 400),
        (connect("/api"), None, 400),
        (b"CONNECT " + TARGET.encode() + b" HTTP/1.0\r\n\r\n", None, 400),
        (b"CONNECT " + TARGET.encode() + b" HTTP/1.1\r\nno field\r\n\r\n", None, 400),
        (b"CONNECT " + b"x" * 9000, None, 431),
        # As a later request on an HTTP connection.
        (b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n" + connect(), None, 0),
    ):
        answer = knocker.say(said, who)
        if status:
            assert status_of(answer) == status, (said, answer)
        else:
            assert answer.startswith(b"HTTP/1.1 404 "), answer
            assert b"HTTP/1.1 400 " in answer, answer
            assert b" 200 " not in answer
    assert knocker.lender.hub.metric("edgehub_lent_tunnels") == 0
    with knocker.open(None) as conn:
        conn.sendall(connect())
        assert status_of(read_all(conn)) == 401
    with knocker.open(knocker.borrower.credential) as conn:
        for each in connect():
            conn.sendall(bytes([each]))
        assert conn.recv(4096).startswith(b"HTTP/1.1 200 "), "a head that comes in pieces is one"


async def test_a_borrower_reaches_only_the_servers_of_the_hub(tmp_path: Path) -> None:
    async with lone_links(tmp_path, (), ()) as pool:
        asked = len(pool.proxy.asked)
        await asyncio.to_thread(attacks, pool)
        assert all(TARGET in each for each in pool.proxy.asked[asked:])


async def test_a_tunnel_closes_with_either_side_or_the_nodes_pool_membership(tmp_path: Path) -> None:
    async with lone_links(tmp_path, (), ()) as pool:
        knocker = PeerClient(pool)
        lender = knocker.lender

        def lent() -> float:
            return lender.hub.metric("edgehub_lent_tunnels")

        half = await asyncio.to_thread(knocker.tunnel)
        assert await asyncio.to_thread(lent) == 1
        socket.socket.shutdown(half, socket.SHUT_WR)
        await until(lambda: lent() == 0, "a half-open tunnel ends")
        half.close()

        cut = await asyncio.to_thread(knocker.tunnel)
        await asyncio.to_thread(lender.link.refuse)
        assert await asyncio.to_thread(read_all, cut) == b""
        await until(lambda: lent() == 0, "a tunnel ends with the lender's own way")
        answer = await asyncio.to_thread(knocker.say, connect())
        assert status_of(answer) in (502, 503)
        cut.close()
        await asyncio.to_thread(lender.link.carry)
        await until(lambda: lender.via("own"), "the lender has a way again")

        left = await asyncio.to_thread(knocker.tunnel)
        pool.enrol(lender.name)
        assert await asyncio.to_thread(read_all, left) == b""
        await until(lambda: lent() == 0, "a tunnel ends with the node's membership")
        left.close()
