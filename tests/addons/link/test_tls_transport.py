"""The TLS transport in both roles: here a client and a server meet in one process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from cryptography import x509
from OpenSSL import SSL

from addons.link.tls import client_connection, client_context
from addons.link.tls_transport import RECORD, TlsTransport
from addons.telemetry import metrics
from tests.addons.support.link_parts import AUTHORITY
from tests.addons.support.observed import until, value_of


class End(TlsTransport):
    """Pass the decrypted bytes to `inside`."""

    def __init__(self, tls: SSL.Connection) -> None:
        super().__init__()
        self.begun, self.inside = tls, Inside()
        self.refusal = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.start(self.begun)

    def handshake_done(self, tls: SSL.Connection) -> None:
        self.start_protocol(self.inside)

    def handshake_failed(self, tls: SSL.Connection, why: str) -> None:
        self.refusal = why
        self.close()


class Inside(asyncio.Protocol):
    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.transport: asyncio.Transport | None = None
        self.has_ended = self.reads_once = False
        self.lost: list[Exception | None] = []

    @property
    def all(self) -> bytes:
        return b"".join(self.got)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got.append(data)
        if self.reads_once and self.transport is not None:
            self.transport.pause_reading()

    def eof_received(self) -> None:
        self.has_ended = True

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)


@asynccontextmanager
async def both_ends(folder: Path, name: str = "localhost") -> AsyncIterator[tuple[End, End]]:
    """Return the transports of a client and a server."""
    own = SSL.Context(SSL.TLS_SERVER_METHOD)
    certificate, key = AUTHORITY.issue_server("server", ["localhost"]).write(folder, "server")
    own.use_certificate_chain_file(str(certificate))
    own.use_privatekey_file(str(key))
    accepting = SSL.Connection(own)
    accepting.set_accept_state()
    trusted = client_context([x509.load_pem_x509_certificate(AUTHORITY.certificate)])
    calling = client_connection(trusted, name, [b"h2"])
    loop, pair = asyncio.get_running_loop(), socket.socketpair()
    client, server = End(calling), End(accepting)
    await loop.create_connection(lambda: server, sock=pair[0])
    await loop.create_connection(lambda: client, sock=pair[1])
    yield client, server
    client.abort()
    server.abort()
    await until(lambda: client.is_closing() and server.is_closing())


async def test_client_and_server_read_the_bytes_of_their_peer(tmp_path: Path) -> None:
    sent = bytes(range(256)) * 1024
    async with both_ends(tmp_path) as (client, server):
        client.write(b"too early, and lost")
        await until(lambda: client.inside.transport and server.inside.transport)
        client.write(sent)
        client.write(b"")
        server.write(sent)
        await until(lambda: len(server.inside.all) == len(client.inside.all) == len(sent))
        assert server.inside.all == client.inside.all == sent


async def test_close_notify_is_an_orderly_end_and_a_cut_is_an_error(tmp_path: Path) -> None:
    for is_cut in (False, True):
        async with both_ends(tmp_path) as (client, server):
            await until(lambda: client.inside.transport and server.inside.transport)
            client.write(b"last")
            await until(lambda: server.inside.got)
            client.abort() if is_cut else client.close()
            await until(lambda: server.inside.lost)
            assert server.inside.has_ended is not is_cut


async def test_both_ends_report_why_a_handshake_fails(tmp_path: Path) -> None:
    async with both_ends(tmp_path, "elsewhere") as (client, server):
        await until(lambda: client.is_closing() and server.is_closing())
        assert client.refusal == "certificate verify failed"
        assert server.refusal.endswith("alert internal error"), "pyOpenSSL lets a callback choose no other"
        assert (client.inside.transport, server.inside.transport) == (None, None)


@pytest.mark.parametrize("reads", [True, False])
async def test_key_update_responses_are_flushed_and_bounded_for_a_slow_client(reads: bool) -> None:
    """Responses once stayed in OpenSSL's buffer, without a bound, until the hub wrote something else."""

    class NewKeys:
        """Simulate OpenSSL with a pending response to each received byte, for a client that only renews its keys."""

        def __init__(self) -> None:
            self._owed = b""

        def do_handshake(self) -> None:
            """Succeed at once."""

        def bio_write(self, data: bytes) -> None:
            self._owed += bytes(22 * len(data))

        def recv(self, _size: int) -> bytes:
            raise SSL.WantReadError

        def bio_read(self, size: int) -> bytes:
            if not self._owed:
                raise SSL.WantReadError
            answer, self._owed = self._owed[:size], self._owed[size:]
            return answer

    near, far = socket.socketpair()
    end = End(cast("SSL.Connection", NewKeys()))
    await asyncio.get_running_loop().create_connection(lambda: end, sock=near)
    reader, writer = await asyncio.open_connection(sock=far)
    counted = metrics.BOUNDS_REACHED.labels("answers to new keys of TLS")
    before, rounds = value_of(counted), 0
    while not end.is_closing() and rounds < 1_000:
        end.data_received(bytes(100))
        if reads:
            assert len(await reader.readexactly(2_200)) == 2_200
        rounds += 1
    assert end.is_closing() is not reads
    assert value_of(counted) == before + (not reads)
    end.abort()
    writer.transport.abort()


async def test_a_protocol_that_paused_reading_gets_the_end_when_it_resumes(tmp_path: Path) -> None:
    async with both_ends(tmp_path) as (client, server):
        await until(lambda: client.inside.transport and server.inside.transport)
        server.inside.reads_once = True
        client.write(bytes(3 * RECORD))
        client.close()
        await until(lambda: server.inside.got)
        await asyncio.sleep(0)
        assert not server.inside.has_ended
        server.inside.reads_once = False
        server.resume_reading()
        await until(lambda: server.inside.has_ended)
        assert len(server.inside.all) == 3 * RECORD
