"""What a request passes on its way is the hub's own, on both sides and for both versions of HTTP."""

from __future__ import annotations

import pytest
from mitmproxy.proxy.layer import Layer

from addons.proxy.http.client_connections import BoundedHttp2Server
from addons.proxy.http.http_connections import HubHttp1Client, HubHttp2Client
from addons.proxy.http.http_layer import HubHttpLayer
from addons.proxy.http.request_stream import RequestStream
from tests.addons.support.lasting_parts import connected, known, watch
from tests.addons.support.proxied import WATCH, Http2Server, Raw


@pytest.mark.parametrize(
    ("server", "upstream"),
    [(Raw(WATCH, kept=True), HubHttp1Client), (Http2Server(100), HubHttp2Client)],
    ids=["HTTP/1.1", "HTTP/2"],
)
async def test_a_requests_stream_and_connections_are_the_hubs(
    server: Raw | Http2Server, upstream: type[Layer]
) -> None:
    async with server.serve(), connected(server) as (proxy, streams):
        await watch(streams, 1)
        handler = proxy.handlers[0]
        layer = handler.layer
        assert isinstance(layer, HubHttpLayer)
        assert [type(each) for each in layer.streams.values()] == [RequestStream]
        assert isinstance(layer.protocol_of(handler.client), BoundedHttp2Server)
        assert [type(layer.protocol_of(each)) for each in known(proxy)] == [upstream]
