"""A server that ends has every connection that asyncio accepted for it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

from tests.cloud.pki import Authority
from tests.support.accepting import end_accepting

TURNS_TO_ACCEPT = 10
"""Turns of the loop in which it finds a connection that is there, and makes a task for it."""


async def test_a_connection_whose_handshake_goes_on_comes_to_the_server(tmp_path: Path) -> None:
    authority = Authority()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.issue_server("localhost", ["localhost"]).write(tmp_path, "server"))
    trusting = ssl.create_default_context(cadata=authority.certificate.decode())
    came: list[asyncio.StreamWriter] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = await asyncio.start_server(
            lambda _, writer: came.append(writer), sock=listening, ssl=context
        )
        _, plain = await asyncio.open_connection(*listening.getsockname())
        for _ in range(TURNS_TO_ACCEPT):
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
