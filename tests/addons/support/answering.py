"""Answers that an origin writes through a real mitmproxy, with the body past the connection between the two."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from mitmproxy import http

from addons.proxy.flow_streams import FlowStream
from addons.requests.headers import TICKET_HEADER
from addons.views.origin import Origin
from addons.views.responses import AnswerBody
from tests.addons.support.proxied import Proxy, Raw

CLIENT_WINDOW = 65_535
"""Bytes of a window of HTTP/2 unless a client says otherwise."""
REQUEST = b"GET /watch HTTP/1.1\r\nHost: hub\r\n\r\n"


@dataclass
class Answering:
    """An origin whose one answer is written by `write`, and what became of the answer."""

    write: Callable[[AnswerBody], Awaitable[None]]
    flows: list[http.HTTPFlow] = field(default_factory=list)
    detours: list[bytes] = field(default_factory=list)
    """What went the way of the head."""
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, stream: FlowStream, request: web.BaseRequest) -> web.StreamResponse:
        body = AnswerBody(request, stream)
        write = body.response.write

        async def noted(data: bytes | bytearray | memoryview) -> None:
            self.detours.append(bytes(data))
            await write(data)

        body.response.write = noted  # type: ignore[method-assign]  # of this one response
        try:
            await body.begin({"Content-Type": "text/plain"})
            await self.write(body)
        finally:
            self.over.set()
        return body.response


@asynccontextmanager
async def before[Server: Raw](proxy: Proxy[Server], answering: Answering) -> AsyncIterator[None]:
    """Have the proxy send each request to the origin, as the router does."""
    origin = Origin()
    await origin.start()

    def redirect(flow: http.HTTPFlow) -> None:
        answering.flows.append(flow)
        flow.request.host, flow.request.port = origin.address
        stream = FlowStream(flow)
        flow.request.headers[TICKET_HEADER] = origin.ticket(lambda request: answering.answer(stream, request))

    proxy.decide = redirect
    yield
    assert origin._runner is not None  # the process' end closes it elsewhere
    await origin._runner.cleanup()
    origin.close()
