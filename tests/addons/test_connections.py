"""What passes an upgraded connection is forgotten, as is a ClientHello; some clients have descriptors left for them."""

from __future__ import annotations

import ssl
import weakref
from contextlib import suppress

import pytest
from mitmproxy.options import Options
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.tls import parse_client_hello
from mitmproxy.proxy.mode_specs import ProxyMode
from mitmproxy.test import tflow
from mitmproxy.tls import ClientHelloData

from addons.connections import Connections, _is_reserved
from addons.requests.caller import Listener


def test_what_passes_an_upgraded_connection_is_not_kept() -> None:
    flow = tflow.ttcpflow()
    assert flow.messages
    Connections().tcp_message(flow)
    assert flow.messages == []


@pytest.mark.usefixtures("uncollected")
def test_what_a_client_says_first_is_gone_when_its_handshake_is_over() -> None:
    said, context = ssl.MemoryBIO(), ssl.create_default_context()
    context.set_alpn_protocols(["h2"])
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), said, server_hostname="hub.example").do_handshake()
    hello = parse_client_hello(said.read())
    assert hello is not None
    Connections().tls_clienthello(ClientHelloData(Context(tflow.tclient_conn(), Options()), hello))
    assert (hello.sni, hello.alpn_protocols) == ("hub.example", [b"h2"])
    parts = weakref.ref(hello._client_hello)
    del hello
    assert parts() is None


@pytest.mark.parametrize("listener", list(Listener))
def test_descriptors_are_left_for_the_node_and_the_hub_itself(listener: Listener) -> None:
    client = tflow.tclient_conn()
    client.proxy_mode = ProxyMode.parse(f"hub:{listener}@1")
    assert _is_reserved(client) is (listener is Listener.PLAIN)
