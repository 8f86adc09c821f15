"""Listeners in a running mitmproxy: opened on demand, told apart, and named when they cannot be opened."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket

import pytest
from mitmproxy.addons.next_layer import NextLayer
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.test import taddons

from addons.proxy.listeners import closed, open_listeners
from tests.addons.support.listening import address_of

ANY = "hub:plain@127.0.0.1:0"


async def test_listeners_are_opened_and_stay_open() -> None:
    with taddons.context(server := Proxyserver(), NextLayer()):
        assert closed([ANY]) == ["127.0.0.1:0"]
        await open_listeners([ANY])
        first = address_of(ANY)
        assert closed([ANY]) == []
        await open_listeners([ANY, other := ANY.replace("127.0.0.1:0", "127.0.0.2:0")])
        assert address_of(ANY) == first
        assert address_of(other)[0] == "127.0.0.2"
        _, writer = await asyncio.open_connection(*first)
        writer.close()
        await writer.wait_closed()
        await server.servers.update([])
        assert len(closed([ANY, other])) == 2


async def test_a_taken_port_is_an_error_that_names_it_and_mitmproxy_says_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        taddons.context(server := Proxyserver(), NextLayer()),
        socket.create_server(("127.0.0.1", 0)) as taken,
    ):
        server.running()  # so that the change of the options starts an update of mitmproxy's own as well
        spec = f"hub:plain@127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match="Address already in use") as caught:
            await open_listeners([ANY, spec])
        assert (caught.value.errno, caught.value.filename) == (errno.EADDRINUSE, spec)
        assert closed([ANY, spec]) == [spec.rpartition("@")[2]]
        assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
        await server.servers.update([])
    assert not logging.getLogger("mitmproxy.addons.proxyserver").disabled
