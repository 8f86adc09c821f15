"""A flow's stream with bounds: it refuses heads and bodies, answers at once, and keeps bodies for another server.

It has the hub answer a request whose server fails, for which mitmproxy has no hook.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from mitmproxy import http
from mitmproxy.connection import Server
from mitmproxy.net.http.http1 import expected_http_body_size
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import HTTPMode, HttpStream, SendHttp
from mitmproxy.proxy.layers.http._base import HttpEvent
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    RequestData,
    RequestEndOfMessage,
    RequestHeaders,
    RequestProtocolError,
    ResponseData,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
)
from mitmproxy.proxy.layers.http._hooks import HttpRequestHeadersHook

from addons.offline.cached_response import MAX_KEPT as MAX_ANSWER
from addons.proxy.http.http_connections import STREAM_UNREAD, OwnMethod
from addons.proxy.http.messages import refuse
from addons.proxy.http.own_events import BodyTime, HeldBody
from addons.requests.exchange.client_addresses import MAX_REQUEST_BODY, ClientAddress
from addons.requests.exchange.request_bodies import BODY_TIME
from addons.requests.exchange.request_head import fault_of
from addons.requests.request_context import context_of
from addons.telemetry import metrics
from kube.bounds import reached
from kube.errors import StatusError, entity_too_large, request_timeout, too_many_requests

logger = logging.getLogger(__name__)


class RequestStream(HttpStream):
    """The way of one request through mitmproxy. It is no part of a cycle, so it is freed when the request has ended.

    Where mitmproxy would answer 502, it calls `RequestContext.failover` once before it gives up, for a request that
    mitmproxy holds whole and of whose answer the client has nothing. mitmproxy holds the answer for as long. One of
    more than MAX_ANSWER bytes is handed on as it comes.
    """

    client_state: Any = OwnMethod()
    server_state: Any = OwnMethod()

    def __init__(
        self,
        context: Context,
        stream_id: int,
        address: ClientAddress,
        server: Server,
        has_handled: Callable[[commands.StartHook], bool],
    ) -> None:
        """`server` is the side that has requests answered.

        `has_handled` has the addons handle a hook, and says whether they have done so at once.
        """
        super().__init__(context, stream_id)
        self.address = address
        self._server = server
        self._has_handled = has_handled
        self.mode: HTTPMode = self.mode  # mitmproxy looks for it in the list, when it is first asked
        context.layers.remove(self)
        self.request_body_buf = bytearray()  # type: ignore[assignment]  # as mitmproxy's own, and small pieces cost no more
        self.weight = 1
        """As how many requests this one counts at its address."""
        self._held = 0
        """Bytes of the body that count as held."""
        self._collected = 0
        """Bytes of the answer that count so."""
        self.begun_body: float | None = None
        """When the body began, by the monotonic clock; None where the request has none."""
        self._sent: bytearray | None = None
        """The streamed body so far, for a second server; None where it is not kept."""
        self.received: Callable[[bytes], None] | None = None
        """Takes what the client sends behind a 101 of the hub's own; None where nobody does."""
        self._begun: asyncio.Event | None = None
        """Set when the addons have seen the response's head; None where nobody waits for that."""
        self._after_body: layer.CommandGenerator[None] | None = None
        """What mitmproxy does behind a body that is played; None where none is."""
        self._played_since = 0.0
        """When that body began, by the monotonic clock."""

    @property
    def is_streaming(self) -> bool:
        """Whether the response's head has been sent, and pieces of its body may follow."""
        takes_pieces = self.server_state in (self.state_stream_response_body, self.state_play_response)
        return takes_pieces and self._paused is None

    @property
    def is_chunked(self) -> bool:
        """Whether the response's head has said that its body comes in chunks."""
        assert self.flow.response is not None
        return "chunked" in self.flow.response.headers.get("transfer-encoding", "")

    def changed(self, piece: bytes) -> bytes:
        """What the addons make of a piece of the response's body."""
        assert self.flow.response is not None
        change = self.flow.response.stream
        made = change(piece) if callable(change) else piece
        return made if isinstance(made, bytes) else b"".join(made)

    async def response_begun(self) -> bool:
        """Wait until the addons have seen the response's head; whether pieces of its body may follow."""
        if self.server_state == self.state_wait_for_response_headers:
            self._begun = asyncio.Event()
            await self._begun.wait()
        return self.is_streaming

    def is_late(self, now: float) -> bool:
        """Whether the hub holds a body whose client has not sent all of it in BODY_TIME, or not taken all of it."""
        if self._after_body is not None:
            return now - self._played_since > BODY_TIME
        holds = self.client_state == self.state_consume_request_body or (
            self.client_state == self.state_stream_request_body and self._sent is not None
        )
        return holds and self.begun_body is not None and now - self.begun_body > BODY_TIME

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        if not isinstance(event, BodyTime):
            yield from self._past_hooks(super()._handle_event(event))
        elif self.is_late(event.now):
            yield from self._past_hooks(self._end_late())
        if self.begun_body is not None and self._is_answered_early:
            # mitmproxy ends the answer when its client has sent all, and the client may wait for that end.
            ending = super().state_stream_request_body(RequestEndOfMessage(self.stream_id))
            yield from self._past_hooks(ending)
        if self._held and (isinstance(event, RequestProtocolError) or self.is_over):
            self._hold(0)
        if self._collected:
            holds = self._after_body is not None or self.server_state == self.state_consume_response_body
            if self.is_over or not holds:
                self._may_hold(0)

    def _past_hooks(self, handling: layer.CommandGenerator[None]) -> layer.CommandGenerator[None]:
        """Go on at once behind a hook that waits for nothing. mitmproxy makes a task and an event of each.

        A hook for which a layer below waits, after a 101, is left to mitmproxy.
        """
        reply = None
        while True:
            try:
                command = handling.send(reply)
            except StopIteration:
                return
            match command:
                case commands.StartHook(blocking=True) if self._has_handled(command):
                    reply = None
                case _:
                    reply = yield command

    def make_server_connection(self) -> layer.CommandGenerator[bool]:
        """Take the side that has requests answered, for which mitmproxy would ask the layer above."""
        self.context.server = self.flow.server_conn = self._server
        return True
        yield

    @property
    def _is_answered_early(self) -> bool:
        """Whether the server has said all of its answer while the request's body still comes."""
        if self.server_state != self.state_done or self.client_state != self.state_stream_request_body:
            return False
        return self.flow.response is not None and self.flow.response.status_code != 101

    def let_go(self) -> None:
        """Count what is held no longer: the client's connection has ended, whatever the addons still do."""
        self._hold(0)
        self._may_hold(0)
        self._after_body = None

    def _may_hold(self, size: int) -> bool:
        """Count so many bytes of the answer as held; False where the hub may not have them."""
        if size > MAX_ANSWER or not self.address.resize_answer(self._collected, size):
            return False
        self._collected = size
        return True

    @property
    def is_over(self) -> bool:
        """Whether nothing more of an answer goes to the client."""
        if self.received is not None and self._handle_event == self.passthrough:
            return False
        return (
            self.server_state in (self.state_done, self.state_errored)
            or self.client_state == self.state_errored
        )

    def state_wait_for_request_headers(self, event: RequestHeaders) -> layer.CommandGenerator[None]:
        head = event.request.data
        self.weight = self.address.begin_request(head.path, head.headers.fields)
        fault = fault_of(head.method, head.path, head.authority, head.headers.fields) or self._too_many()
        if fault is not None:
            self.flow = http.HTTPFlow(self.context.client, self.context.server)
            self.flow.request, self.flow.live = event.request, True
            self._refuse(fault)
            yield HttpRequestHeadersHook(self.flow)
            yield from self._answer()
            return
        yield from super().state_wait_for_request_headers(event)
        if event.end_stream:
            return
        self.begun_body = time.monotonic()
        if self.client_state == self.state_stream_request_body:
            self._sent = bytearray()
        elif self.client_state == self.state_consume_request_body:
            size = expected_http_body_size(self.flow.request) or 0
            if self.flow.response is None and size > MAX_REQUEST_BODY:
                self._refuse(entity_too_large(f"limit is {MAX_REQUEST_BODY}"))
            if self.flow.response is not None:
                yield from self._answer()

    def state_consume_request_body(self, event: events.Event) -> layer.CommandGenerator[None]:
        if isinstance(event, RequestData):
            fault = self._hold(len(self.request_body_buf) + len(event.data))
            if fault is not None:
                self._refuse(fault)
                yield from self._answer()
                return
        yield from super().state_consume_request_body(event)

    def state_stream_request_body(self, event: HttpEvent) -> layer.CommandGenerator[None]:
        if isinstance(event, RequestData) and self._sent is not None:
            waiting = self.server_state == self.state_wait_for_response_headers
            if waiting and self._hold(len(self._sent) + len(event.data)) is None:
                self._sent += event.data
            else:
                self._forget_sent()
        yield from super().state_stream_request_body(event)

    def state_wait_for_response_headers(self, event: ResponseHeaders) -> layer.CommandGenerator[None]:
        yield from super().state_wait_for_response_headers(event)
        if self._begun is not None:
            self._begun.set()

    def send_response(self, already_streamed: bool = False) -> layer.CommandGenerator[None]:
        """As mitmproxy, but for a body of more than STREAM_UNREAD, which the hub holds until the client has read it.

        mitmproxy hands on all of it at once: of three lists of a client that reads, two were more than it may leave
        unread.
        """
        sending, reply = super().send_response(already_streamed), None
        while True:
            try:
                command = sending.send(reply)
            except StopIteration:
                return
            part = command.event if isinstance(command, SendHttp) else None
            if isinstance(part, ResponseData) and len(part.data) > STREAM_UNREAD and not already_streamed:
                self._after_body, self._played_since = sending, time.monotonic()
                self.server_state = self.state_play_response
                yield SendHttp(HeldBody(self.stream_id, part.data), self.context.server)
                return
            reply = yield command

    def state_play_response(self, event: HttpEvent) -> layer.CommandGenerator[None]:
        """Hand on a piece of a body that the hub holds, or its end."""
        if isinstance(event, ResponseData):
            yield SendHttp(event, self.context.client)
        elif self._after_body is not None:
            rest, self._after_body = self._after_body, None
            self.server_state = self.state_done
            yield from rest

    def handle_protocol_error(
        self, event: RequestProtocolError | ResponseProtocolError
    ) -> layer.CommandGenerator[None]:
        if self._after_body is not None:
            # The addons have seen the whole response, and hear of no error.
            self._after_body, self.server_state = None, self.state_done
            ended = RequestProtocolError(self.stream_id, event.message, event.code)
            yield SendHttp(ended, self.context.server)
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
        is_held = self.server_state == self.state_consume_response_body
        if is_held and not self._may_hold(len(self.response_body_buf)):
            yield from self._hold_no_longer()

    def _hold_no_longer(self) -> layer.CommandGenerator[None]:
        """Hand a response on as a stream that is too large to be held; end it where it must be held whole."""
        reached("held answer")
        context = context_of(self.flow)
        if context is None or context.stream_too_large is None:
            message = f"the response has more than {MAX_ANSWER} bytes, or others have too many"
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

    def passthrough(self, event: events.Event) -> layer.CommandGenerator[None]:
        """Behind a 101, end both sides with either, however it ends: who is left would wait for ever."""
        if isinstance(event, ResponseProtocolError):  # which mitmproxy has for an error of its own
            event = ResponseEndOfMessage(self.stream_id)
        yield from super().passthrough(event)
        if isinstance(event, RequestEndOfMessage):
            yield from super().passthrough(ResponseEndOfMessage(self.stream_id))

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
            logger.exception("a request whose server failed could not be answered")
            metrics.HOOK_ERRORS.labels("edgehub-failover", "failover").inc()
            return False
        self.flow.response = None
        return True

    @property
    def kept_body(self) -> bytes | bytearray | None:
        """What has come of the request's body, for another server; None where that is not kept."""
        if not self.flow.request.stream:
            return self.flow.request.raw_content or b""
        return self._sent if self.begun_body is not None else b""

    def _end_late(self) -> layer.CommandGenerator[None]:
        """Hold the body no longer: refuse the request that waits for it, and let one that is streamed go on.

        An answer that is not taken breaks off.
        """
        if self._after_body is not None:
            metrics.UNREAD_STREAMS.inc()
            why = f"the client did not read the answer within {BODY_TIME:.0f} seconds"
            yield from self.handle_protocol_error(
                ResponseProtocolError(self.stream_id, why, ErrorCode.CANCEL)
            )
            return
        if self._sent is not None:
            self._forget_sent()
            return
        self._refuse(request_timeout(f"the body did not come within {BODY_TIME:.0f} seconds"))
        yield from self._answer()

    def _forget_sent(self) -> None:
        self._sent = None
        self._hold(0)

    def _too_many(self) -> StatusError | None:
        why = "too many requests from this address are under way"
        return None if self.address.has_room else too_many_requests(why, 1)

    def _hold(self, wanted: int) -> StatusError | None:
        fault = self.address.resize_body(self._held, wanted)
        if fault is None:
            self._held = wanted
        return fault

    def _refuse(self, fault: StatusError) -> None:
        metrics.REQUESTS_REFUSED.labels(str(fault.code)).inc()
        refuse(self.flow, fault)

    def _answer(self) -> layer.CommandGenerator[None]:
        """Send the answer that is decided, and drop what still comes of the request."""
        assert self.flow.response is not None
        if not self.flow.request.is_http2:
            self.flow.response.headers["Connection"] = "close"
        self.request_body_buf.clear()
        self._hold(0)
        yield from super().state_consume_request_body(RequestEndOfMessage(self.stream_id))
        # What came of the request while the addons decided is dropped, too.
        self.client_state = self.state_errored
