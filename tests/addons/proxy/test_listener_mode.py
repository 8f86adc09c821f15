"""A listener of the hub as a proxy mode of mitmproxy, its sockets, and the first layers of a connection."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import Any

import pytest
from mitmproxy import tls
from mitmproxy.addons.next_layer import NextLayer
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.proxy.mode_specs import ProxyMode, ReverseMode
from mitmproxy.test import taddons, tflow

from addons.proxy.listener_mode import HubMode, listener_of, listener_specs, peer_spec
from addons.proxy.listeners import closed, mode_of_state, open_listeners
from addons.requests.caller import Listener
from addons.server.clients.client_tls import MAX_ERROR_TEXT, MAX_HANDSHAKE
from addons.server.messages import UNROUTED
from addons.settings import parse_settings
from addons.telemetry import metrics
from tests.addons.support.listening import address_of
from tests.addons.support.observed import until, value_of
from tests.addons.test_settings import values

ANY = "hub:plain@127.0.0.1:0"


@pytest.mark.parametrize("listener", list(Listener))
def test_a_listener_is_parsed_as_a_proxy_mode(listener: Listener) -> None:
    client = tflow.tclient_conn()
    client.proxy_mode = ProxyMode.parse(f"hub:{listener}@10.0.0.5:10261")
    assert listener_of(client) is listener
    assert (client.proxy_mode.custom_listen_host, client.proxy_mode.custom_listen_port) == ("10.0.0.5", 10261)


def test_an_unknown_listener_is_refused() -> None:
    with pytest.raises(ValueError, match="'other' is not a valid Listener"):
        HubMode.parse("hub:other@1")


def test_a_mode_of_mitmproxy_is_not_a_listener_of_the_hub() -> None:
    assert listener_of(tflow.tclient_conn()) is None


def test_a_saved_flow_can_be_loaded_by_any_mitmproxy() -> None:
    flow = tflow.tflow()
    flow.client_conn.proxy_mode = HubMode.parse("hub:tls@fd00::5:10268")
    saved = type(flow).from_state(flow.get_state()).client_conn.proxy_mode
    assert isinstance(saved, ReverseMode)
    assert saved.address == UNROUTED
    assert (saved.custom_listen_host, saved.custom_listen_port) == ("fd00::5", 10268)


async def test_a_loaded_flow_refers_to_the_open_listener_of_its_mode() -> None:
    mode, other = HubMode.parse(ANY), ProxyMode.parse("regular")
    with taddons.context(server := Proxyserver()):
        await open_listeners([ANY])
        assert mode_of_state(ProxyMode.parse(mode.get_state())) is mode
        assert mode_of_state(other) is other
        await server.servers.update([])


@pytest.mark.parametrize(
    ("first", "served"),
    [(b"GET / HTTP/1.1\r\n", True), (b"\x16\x03\x01\x00", False), (b"\x16", False)],
    ids=["HTTP", "TLS", "the first byte of TLS"],
)
async def test_tls_is_detected_from_the_first_bytes_of_a_client(first: bytes, served: bool) -> None:
    def _of(server: Proxyserver, writer: asyncio.StreamWriter) -> Any:
        """Return the handler of this client."""
        name = writer.get_extra_info("sockname")
        return next((each for each in server.connections.values() if each.client.peername == name), None)

    with taddons.context(server := Proxyserver()):
        await open_listeners([ANY])
        _, writer = await asyncio.open_connection(*address_of(ANY))
        writer.write(first)
        await until(lambda: (found := _of(server, writer)) is not None and found.client.tls is not served)
        await until(lambda: (_of(server, writer).served is not None) is served)
        writer.transport.abort()
        await until(lambda: not server.connections)
        await server.servers.update([])


async def test_data_of_an_endless_handshake_is_bounded() -> None:
    """100 connections without a token once took 70 MB in two seconds, and bytes that are no handshake were logged
    completely."""

    class Faults:
        """Record the failed handshakes."""

        def __init__(self) -> None:
            self.seen: list[str] = []

        def tls_failed_client(self, data: tls.TlsData) -> None:
            self.seen.append(data.conn.error or "")

    before = value_of(metrics.CONNECTIONS_REFUSED.labels("handshake"))
    endless = b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + bytes(0x4000 - 4)
    malformed = b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc" + b"\xff" * (0x4000 - 4)
    faults = Faults()
    with taddons.context(server := Proxyserver(), faults):
        await open_listeners([ANY])
        for sent in (endless, malformed):
            reader, writer = await asyncio.open_connection(*address_of(ANY))
            writer.write(sent)
            async with asyncio.timeout(20):
                assert await reader.read() == b""
            writer.transport.abort()
        await until(lambda: not server.connections)
        await server.servers.update([])
    assert value_of(metrics.CONNECTIONS_REFUSED.labels("handshake")) == before + 1
    assert len(endless) > MAX_HANDSHAKE
    assert [len(fault) <= MAX_ERROR_TEXT for fault in faults.seen] == [True, True]


def test_the_options_make_one_mode_for_each_listener() -> None:
    modes = [HubMode.parse(spec) for spec in listener_specs(parse_settings(values(listen="::1")))]
    assert [each.listener for each in modes] == [Listener.PLAIN, Listener.TLS]
    assert all(each.transport_protocol == "tcp" for each in modes)
    plain = modes[0]
    assert (plain.custom_listen_host, plain.custom_listen_port) == ("::1", 10261)


@pytest.mark.parametrize(("address", "host"), [("", ""), ("10.0.0.5", "10.0.0.5"), ("fd00::5", "fd00::5")])
def test_the_peer_port_listens_on_the_peer_address(address: str, host: str) -> None:
    peers = HubMode.parse(peer_spec(parse_settings(values(peer_address=address, peer_port=10269))))
    assert (peers.custom_listen_host, peers.custom_listen_port) == (host, 10269)


@pytest.mark.parametrize(
    ("given", "addresses", "hosts"),
    [
        ({"pod_address": "auto"}, ("169.254.2.1",), ["127.0.0.1", "169.254.2.1"]),
        (
            {"pod_address": "auto,10.0.0.9,fd00::9"},
            ("10.0.0.9", "fd00::9"),
            ["127.0.0.1", "10.0.0.9", "fd00::9"],
        ),
        ({"pod_address": "auto", "listen": "::"}, ("169.254.2.1",), ["::"]),
        ({"pod_address": "10.0.0.9"}, ("10.0.0.9",), ["127.0.0.1"]),
    ],
)
def test_a_hub_that_adds_the_pod_address_listens_on_it(
    given: dict[str, str], addresses: tuple[str, ...], hosts: list[str]
) -> None:
    settings = parse_settings(values(**given))
    assert settings.pod_addresses == addresses
    modes = [HubMode.parse(spec) for spec in listener_specs(settings)]
    tls = [each for each in modes if each.listener is Listener.TLS]
    assert [each.custom_listen_host for each in tls] == hosts


def test_port_zero_switches_a_listener_off() -> None:
    modes = listener_specs(parse_settings(values(port=0, tls_port=0)))
    assert modes == []


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


async def test_a_used_port_is_an_error_with_its_number_and_no_log_of_mitmproxy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        taddons.context(server := Proxyserver(), NextLayer()),
        socket.create_server(("127.0.0.1", 0)) as taken,
    ):
        server.running()  # the change of the options starts an update by mitmproxy as well
        spec = f"hub:plain@127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match="Address already in use") as caught:
            await open_listeners([ANY, spec])
        assert (caught.value.errno, caught.value.filename) == (errno.EADDRINUSE, spec)
        assert closed([ANY, spec]) == [spec.rpartition("@")[2]]
        assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
        await server.servers.update([])
    assert not logging.getLogger("mitmproxy.addons.proxyserver").disabled
