"""Sends a request to the origin when its server fails, where mitmproxy would answer 502.

mitmproxy has no hook for that, so the hub extends the stream of a flow at the point where mitmproxy gives up. This
works for a request that mitmproxy holds whole, as long as the client has received nothing of an answer.

mitmproxy holds the answer too, for as long as the request could still be turned. An answer of more than MAX_BODY bytes
is handed on as it comes instead: kube-apiserver announces no length for what is larger than some kilobytes.
"""

from __future__ import annotations

import logging

from mitmproxy.connection import ConnectionState
from mitmproxy.proxy import events, layer
from mitmproxy.proxy.layers.http import HttpStream, SendHttp
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    RequestEndOfMessage,
    RequestProtocolError,
    ResponseData,
    ResponseProtocolError,
)

from addons.offline.cached_response import MAX_BODY
from addons.requests.request_context import context_of
from addons.telemetry import metrics
from kube.bounds import reached

logger = logging.getLogger(__name__)


class FailoverStream(HttpStream):
    """A flow's stream that calls `RequestContext.failover` once before it gives up."""

    _was_turned = False

    def handle_protocol_error(
        self, event: RequestProtocolError | ResponseProtocolError
    ) -> layer.CommandGenerator[None]:
        if isinstance(event, ResponseProtocolError) and self._is_late:
            return
        if isinstance(event, ResponseProtocolError) and self._is_whole and self._turn():
            # mitmproxy goes on as if the client had just ended its request.
            self.request_body_buf += self.flow.request.raw_content or b""
            self.response_body_buf.clear()
            self.client_state = self.state_consume_request_body
            self.server_state = self.state_wait_for_response_headers
            yield from self.client_state(RequestEndOfMessage(self.stream_id))
        else:
            yield from super().handle_protocol_error(event)

    def state_consume_response_body(self, event: events.Event) -> layer.CommandGenerator[None]:
        yield from super().state_consume_response_body(event)
        if self.server_state == self.state_consume_response_body and len(self.response_body_buf) > MAX_BODY:
            yield from self._hold_no_longer()

    def _hold_no_longer(self) -> layer.CommandGenerator[None]:
        """Hand a response on as a stream that is too large to be held; end it where it must be held whole."""
        reached("held answer")
        context = context_of(self.flow)
        if context is None or context.stream_too_large is None:
            message = f"the response has more than {MAX_BODY} bytes"
            code = ErrorCode.GENERIC_SERVER_ERROR
            yield SendHttp(RequestProtocolError(self.stream_id, message, code), self.context.server)
            yield from super().handle_protocol_error(ResponseProtocolError(self.stream_id, message, code))
            return
        assert self.flow.response is not None
        context.failover = None
        self.flow.response.stream = context.stream_too_large
        held = bytes(self.response_body_buf)
        self.response_body_buf.clear()
        yield from self.start_response_stream()
        yield from self.handle_event(ResponseData(self.stream_id, held))

    @property
    def _is_late(self) -> bool:
        """Whether the error is of the abandoned connection, while the one in its place works."""
        return self._was_turned and bool(self.flow.server_conn.state & ConnectionState.CAN_READ)

    @property
    def _is_whole(self) -> bool:
        """Whether mitmproxy holds the whole request, and the client has received nothing of an answer."""
        waiting = (self.state_wait_for_response_headers, self.state_consume_response_body)
        return self.client_state == self.state_done and self.server_state in waiting

    def _turn(self) -> bool:
        context = context_of(self.flow)
        if context is None or context.failover is None:
            return False
        failover, context.failover = context.failover, None
        try:
            failover(self.flow)
        except Exception:
            logger.exception("a request could not be turned to the origin")
            metrics.HOOK_ERRORS.labels("edgehub-failover", "failover").inc()
            return False
        self.flow.response = None
        self._was_turned = True
        return True
