"""A server that ends has every connection that asyncio accepted for it, and leaves none open."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest
from aiohttp import web

from tests.cloud.pki import Authority
from tests.support.accepting import end_accepting, end_server


@pytest.fixture(name="sides")
def sides_of_tls(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the TLS contexts of the server and of clients."""
    authority = Authority()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.issue_server("localhost", ["localhost"]).write(tmp_path, "server"))
    return context, ssl.create_default_context(cadata=authority.certificate.decode())


async def test_a_connection_in_its_handshake_is_passed_to_the_server(
    sides: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    context, trusting = sides
    came: list[asyncio.StreamWriter] = []
    # Iterations in which the loop accepts a waiting connection, and creates a task for it.
    iterations_to_accept = 10
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = await asyncio.start_server(
            lambda _, writer: came.append(writer), sock=listening, ssl=context
        )
        _, plain = await asyncio.open_connection(*listening.getsockname())
        for _ in range(iterations_to_accept):
            await asyncio.sleep(0)
        ending = asyncio.create_task(end_accepting(listening), name="end")
        await asyncio.sleep(0)
        assert not came, "the handshake has not begun"
        assert not ending.done()
        await plain.start_tls(trusting, server_hostname="localhost")
        await ending
        assert len(came) == 1
        for writer in (plain, *came):
            writer.transport.abort()
        server.close()


async def test_a_connection_whose_client_does_not_end_its_tls_is_closed(
    sides: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    async def answer(_request: web.BaseRequest) -> web.Response:
        return web.Response()

    server = web.Server(answer)
    runner = web.ServerRunner(server)
    await runner.setup()
    listening = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listening, ssl_context=sides[0]).start()
    host, port = listening.getsockname()
    _, client = await asyncio.open_connection(host, port, ssl=sides[1], server_hostname="localhost")
    transport = client.transport
    assert isinstance(transport, asyncio.Transport)
    transport.pause_reading()
    while not server.connections:  # noqa: ASYNC110 - a connection has no notification
        await asyncio.sleep(0.01)
    (connection,) = server.connections
    assert connection.transport is not None
    accepted = connection.transport.get_extra_info("socket")
    await end_server(runner, listening)
    await end_server(runner, listening)
    assert accepted.fileno() < 0
    transport.abort()
