"""Gives the body of an answer to a flow's stream, without the connection between mitmproxy and the origin.

The head of an answer comes over that connection. A body that followed there would cross two sockets and two parsers of
HTTP: they cost more than all else that the hub does about an event of a watch, which a leader sends to a hundred
followers, and their buffers hold what a client does not read.
"""

from __future__ import annotations

from mitmproxy import http
from mitmproxy.proxy.layers.http import HttpStream

from addons.proxy.http.flow_control import handler_of
from addons.proxy.http.http_layer import layer_of
from addons.proxy.http.request_stream import RequestStream


class FlowStream:
    """`addons.requests.client_request.ClientStream` of one flow."""

    def __init__(self, flow: http.HTTPFlow) -> None:
        self._flow = flow
        self._stream: RequestStream | None = None

    async def begun(self) -> bool:
        stream = self._find()
        return stream is not None and await stream.response_begun()

    async def write(self, data: bytes) -> None:
        stream, handler = self._find(), handler_of(self._flow.client_conn.id)
        if stream is None or not stream.is_streaming or handler is None:
            raise ConnectionResetError("the client has left")
        await handler.send_piece(stream, data)

    def _find(self) -> RequestStream | None:
        """The stream of the flow; None once it has ended."""
        layer = layer_of(self._flow.client_conn.id)
        if layer is None:
            return None
        if self._stream is None:
            found = next((each for each in layer.streams.values() if _is_of(each, self._flow)), None)
            self._stream = found if isinstance(found, RequestStream) else None
        if self._stream is None or layer.streams.get(self._stream.stream_id) is not self._stream:
            return None
        return self._stream


def _is_of(stream: HttpStream, flow: http.HTTPFlow) -> bool:
    return getattr(stream, "flow", None) is flow  # a stream has no flow before its request's head
