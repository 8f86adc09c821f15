"""Responses that the hub streams through a real mitmproxy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from mitmproxy import http

from addons.requests.answers import Answer, Answerer, ClientRequest, ClientStream
from addons.requests.request_context import context_of
from addons.requests.route_decision import Route, RouteKind
from tests.addons.support.proxied import Proxy, Raw

CLIENT_WINDOW = 65_535
"""The HTTP/2 window in bytes unless a client sets another."""
REQUEST = b"GET /watch HTTP/1.1\r\nHost: hub\r\n\r\n"


@dataclass
class Answering:
    """Answer each request with a stream written by `write`, and record its end."""

    write: Callable[[ClientStream], Awaitable[None]]
    flows: list[http.HTTPFlow] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, _wanted: ClientRequest, stream: ClientStream) -> Answer | None:
        self.begun.set()
        try:
            await stream.begin({"Content-Type": "text/plain"})
            await self.write(stream)
        finally:
            self.over.set()
        return None


@dataclass
class ImmediateAnswers:
    """Answer each request at once, and record the requests."""

    says: Answer | Exception
    asked: list[ClientRequest] = field(default_factory=list)
    flows: list[http.HTTPFlow] = field(default_factory=list)

    async def answer(self, wanted: ClientRequest, _stream: ClientStream) -> Answer | None:
        self.asked.append(wanted)
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


def answer_here[Server: Raw](
    proxy: Proxy[Server], answerer: Answering | ImmediateAnswers, kind: RouteKind = RouteKind.VIEW
) -> None:
    """Let the hub answer each request, like the router does."""

    def decide(flow: http.HTTPFlow) -> None:
        answerer.flows.append(flow)
        have_answered(flow, answerer, kind)

    proxy.decide = decide


def have_answered(flow: http.HTTPFlow, answerer: Answerer, kind: RouteKind) -> None:
    context = context_of(flow)
    assert context is not None
    context.route, context.answerer = Route(kind, "test"), answerer
