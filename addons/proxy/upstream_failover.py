"""Requests that outlive their server: where mitmproxy would answer 502, the request is sent anew, to the origin.

mitmproxy has no hook that could do that, so the stream of a flow is extended where it gives up. A request that
mitmproxy holds whole and whose answer has not begun to reach the client can be turned; the client sees one answer.
"""

from __future__ import annotations

import logging

from mitmproxy.connection import ConnectionState
from mitmproxy.proxy import layer
from mitmproxy.proxy.layers import http as http_layers
from mitmproxy.proxy.layers.http import HttpStream
from mitmproxy.proxy.layers.http._events import (
    RequestEndOfMessage,
    RequestProtocolError,
    ResponseProtocolError,
)

from addons.requests.request_context import context_of
from addons.telemetry import metrics

logger = logging.getLogger(__name__)


class FailoverStream(HttpStream):
    """A flow's stream that turns to the exchange's `rescue` once before it gives up."""

    _was_turned = False

    def handle_protocol_error(
        self, event: RequestProtocolError | ResponseProtocolError
    ) -> layer.CommandGenerator[None]:
        if isinstance(event, ResponseProtocolError) and self._is_late:
            return
        if isinstance(event, ResponseProtocolError) and self._is_whole and self._turn():
            # As if the client had just ended its request.
            self.request_body_buf += self.flow.request.raw_content or b""
            self.response_body_buf.clear()
            self.client_state = self.state_consume_request_body
            self.server_state = self.state_wait_for_response_headers
            yield from self.client_state(RequestEndOfMessage(self.stream_id))
        else:
            yield from super().handle_protocol_error(event)

    @property
    def _is_late(self) -> bool:
        """The connection that was given up fails once more; the one in its place is well."""
        return self._was_turned and bool(self.flow.server_conn.state & ConnectionState.CAN_READ)

    @property
    def _is_whole(self) -> bool:
        """The request is here in whole, and nothing of an answer has gone to the client."""
        waiting = (self.state_wait_for_response_headers, self.state_consume_response_body)
        return self.client_state == self.state_done and self.server_state in waiting

    def _turn(self) -> bool:
        context = context_of(self.flow)
        if context is None or context.rescue is None:
            return False
        rescue, context.rescue = context.rescue, None
        try:
            rescue(self.flow)
        except Exception:
            logger.exception("a request could not be turned to the origin")
            metrics.HOOK_ERRORS.labels("edgehub-rescue", "rescue").inc()
            return False
        self.flow.response = None
        self._was_turned = True
        return True


def install() -> None:
    """Let mitmproxy make streams of this kind."""
    vars(http_layers)["HttpStream"] = FailoverStream
