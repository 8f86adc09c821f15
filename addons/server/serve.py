"""Serves one request: hooks, body, then a local answer or a relay.

Only `relay` sends anything to a server, and only over the upstream that `addons.egress` creates. An earlier error
becomes a Status.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from mitmproxy import flow as mitmproxy_flow
from mitmproxy import http

from addons.requests.answers import Answerer, ClientLeft, RelayToCloud
from addons.requests.request_context import RelayUpstream, RequestContext, context_of
from addons.server import flow_hooks
from addons.server.flow_hooks import Killed
from addons.server.limits.client_addresses import MAX_REQUEST_BODY
from addons.server.limits.request_bodies import BODY_TIME
from addons.server.limits.request_head import fault_of
from addons.server.messages import error_body, refuse
from addons.server.relay import relay
from addons.server.request import LEFT, ServedRequest
from addons.server.respond import Replaced, respond, send_complete, send_status
from addons.telemetry import metrics
from kube.errors import (
    StatusError,
    entity_too_large,
    internal,
    request_timeout,
    too_many_requests,
    unavailable,
)

logger = logging.getLogger(__name__)


async def serve(request: ServedRequest, flow: http.HTTPFlow | None = None) -> None:
    """Serve a request from its hooks to the end of its answer. `flow` is given for a replay."""
    if flow is None:
        flow = flow_hooks.flow_of(request)
    body = BufferedBody(request)
    try:
        if (fault := fault_of_request(request)) is not None:
            _refuse(request, flow, fault)
        await flow_hooks.requestheaders(request, flow)
        if flow.response is not None or not request.has_body or not flow.request.stream:
            await body.read_body(flow)
            await flow_hooks.request_complete(request, flow)
        await _answer(request, flow)
    except Killed:
        request.abort()
    except (ClientLeft, asyncio.CancelledError):
        # Dropped: the error of a cancelled task would keep all its frames and what they refer to alive.
        flow.error = flow.error or mitmproxy_flow.Error(request.why_left or LEFT)
    except OSError as error:
        flow.error = mitmproxy_flow.Error(str(error) or type(error).__name__)
        await _fail(request, 502, flow.error.msg)
    except Exception as error:
        logger.exception("a request could not be served")
        flow.error = mitmproxy_flow.Error(str(error))
        await _fail(request, 500, "the hub could not answer this request")
    finally:
        body.release()
        if flow.error is not None and not request.is_observed:
            await flow_hooks.error(flow)
        flow.live = False


async def _answer(request: ServedRequest, flow: http.HTTPFlow) -> None:
    try:
        if flow.response is not None:
            await flow_hooks.responseheaders(request, flow)
            await send_complete(request, flow)
            return
        while not await _try_answer(request, flow):
            pass
    except Replaced:
        await send_complete(request, flow)
    except StatusError as error:
        if request.has_begun:
            raise ConnectionResetError(error.message) from None
        await send_status(request, flow, error)


async def _try_answer(request: ServedRequest, flow: http.HTTPFlow) -> bool:
    """Answer locally or by a server. Return False if the attempt switched the request to the other one, which must be
    tried next.
    """
    context = context_of(flow)
    if context is None:
        raise internal("no component answers this request")
    if context.answerer is not None:
        return await _try_respond(request, flow, context, context.answerer)
    if context.upstream is None:
        raise internal("no component answers this request")
    return await _try_relay(request, flow, context, context.upstream)


async def _try_respond(
    request: ServedRequest, flow: http.HTTPFlow, context: RequestContext, answerer: Answerer
) -> bool:
    try:
        await respond(request, flow, context, answerer)
    except RelayToCloud:
        if context.relay is None:
            raise unavailable("the hub has no cached answer", retry_after=1) from None
        context.relay(flow)
        return False
    except (ClientLeft, Killed, Replaced, StatusError):
        raise
    except Exception:
        logger.exception("a request could not be answered")
        raise internal("the hub could not answer this request") from None
    return True


async def _try_relay(
    request: ServedRequest, flow: http.HTTPFlow, context: RequestContext, upstream: RelayUpstream
) -> bool:
    try:
        await relay(request, flow, context, upstream)
    except OSError:
        is_complete = not (request.has_body and flow.request.stream)
        if request.has_begun or not is_complete or not _fail_over(flow, context):
            raise
        return False
    return True


def _fail_over(flow: http.HTTPFlow, context: RequestContext) -> bool:
    """Switch to a local answer after the server failed; return False if no local answer exists."""
    if context.failover is None:
        return False
    failover, context.failover = context.failover, None
    try:
        failover(flow)
    except Exception:
        logger.exception("a request whose server failed could not be answered")
        metrics.HOOK_ERRORS.labels("edgehub-failover", "failover").inc()
        return False
    flow.response = None
    return True


async def _fail(request: ServedRequest, code: int, why: str) -> None:
    """Answer with the Status of a failure, or abort an answer that has begun."""
    if request.has_begun:
        request.abort()
        return
    fields = [(b"Content-Type", b"application/json"), (b"Connection", b"close")]
    with contextlib.suppress(ClientLeft, asyncio.CancelledError):
        await request.send_response(code, fields, error_body(code, why))


class BufferedBody:
    """A request body that the hub buffers until the request is answered, counted at the client's address."""

    def __init__(self, request: ServedRequest) -> None:
        self._request = request
        self._counted = 0

    async def read_body(self, flow: http.HTTPFlow) -> None:
        """Read the body into the flow, unless the request is already answered. A body beyond a bound refuses the
        request.
        """
        request = self._request
        if not request.has_body:
            flow.request.data.content = b""
        elif flow.response is None:
            flow.request.headers.pop("Expect", None)
            if (fault := await self._collect(flow)) is not None:
                _refuse(request, flow, fault)
        if flow.response is not None and request.has_body and not request.inbox.has_ended:
            request.announce_close(flow.response)
        flow.request.timestamp_end = time.time()

    async def _collect(self, flow: http.HTTPFlow) -> StatusError | None:
        if _length_of(flow.request) > MAX_REQUEST_BODY:
            return entity_too_large(f"limit is {MAX_REQUEST_BODY}")
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_TIME):
                while piece := await self._request.read():
                    fault = self._request.address.resize_body(self._counted, len(body) + len(piece))
                    if fault is not None:
                        return fault
                    body += piece
                    self._counted = len(body)
        except TimeoutError:
            return request_timeout(f"the body did not arrive within {BODY_TIME:.0f} seconds")
        flow.request.data.content = bytes(body)
        return None

    def release(self) -> None:
        if self._counted:
            self._request.address.resize_body(self._counted, 0)
            self._counted = 0


def _length_of(request: http.Request) -> int:
    """Return the Content-Length of a request; 0 if it has none."""
    length = request.headers.get("content-length", "0")
    return int(length) if length.isdecimal() else 0


def fault_of_request(request: ServedRequest) -> StatusError | None:
    """Return why a request is refused, by its head and the number of requests at its address; None if it is served."""
    head = request.head.data
    fault = fault_of(head.method, head.path, head.authority, head.headers.fields)
    if fault is None and not request.address.has_capacity:
        return too_many_requests("too many open requests from this address", 1)
    return fault


def _refuse(request: ServedRequest, flow: http.HTTPFlow, fault: StatusError) -> None:
    metrics.REQUESTS_REFUSED.labels(str(fault.code)).inc()
    refuse(flow, fault)
    assert flow.response is not None
    request.announce_close(flow.response)
