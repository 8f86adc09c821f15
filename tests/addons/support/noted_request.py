"""A request without a connection that records each part of its response and the hooks of its flow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mitmproxy import ctx, hooks, http
from mitmproxy.test import taddons, tflow

from addons.requests.request_context import RequestContext, begin
from addons.server.flow_replay import NoSocket
from addons.server.request import AnswerFields, ServedRequest
from addons.server.serve import serve
from tests.addons.support.samples import request_context

type Part = tuple[object, ...]


class RecordedRequest(ServedRequest):
    """A request whose client reads while `reads` is set. Records the parts."""

    def __init__(self, method: str = "GET", body: bytes | None = None) -> None:
        made = tflow.tflow()
        made.request.method = method
        super().__init__(NoSocket(made.client_conn, serve), made.request, has_body=body is not None)
        self.parts: list[Part] = []
        self.part_added = asyncio.Event()
        """Set when a part is added."""
        self.reads = asyncio.Event()
        self.reads.set()
        if body is not None:
            self.inbox.put(body)
            self.inbox.end()

    def _note(self, part: Part) -> None:
        self.parts.append(part)
        self.part_added.set()

    def switch(self, fields: AnswerFields) -> None:
        self.has_begun = True
        self._note(("switched", {name.decode(): value.decode() for name, value in fields}))

    def check(self) -> None:
        """Do nothing: the client is connected."""

    async def read(self) -> bytes:
        return await self.inbox.get()

    def send_head(self, status: int, fields: AnswerFields) -> None:
        self.has_begun = True
        self._note(("head", status, {name.decode(): value.decode() for name, value in fields}))

    def can_send(self, size: int) -> bool:
        return self.reads.is_set()

    def send_now(self, data: bytes) -> None:
        self._note(("data", data))

    async def send(self, data: bytes) -> None:
        await self.reads.wait()
        self._note(("data", data))

    async def writable(self) -> None:
        await self.reads.wait()

    def end(self, trailers: AnswerFields = ()) -> None:
        self.is_over = True
        self._note(("end", *trailers))

    async def send_response(self, status: int, fields: AnswerFields, body: bytes) -> None:
        self.send_head(status, fields)
        self.send_now(body)
        self.end()

    def abort(self) -> None:
        self.is_over = True
        self._note(("broken off",))


@contextmanager
def hooks_of(decide: Callable[[http.HTTPFlow, RequestContext], None]) -> Iterator[list[str]]:
    """Record the names of the hooks, with `decide` as the addon that handles the first of them."""
    called: list[str] = []

    async def handle(hook: hooks.Hook) -> None:
        called.append(hook.name)
        (flow,) = hook.args()
        if hook.name == "requestheaders":
            context = request_context(flow.request.path, method=flow.request.method)
            begin(flow, context)
            decide(flow, context)
        elif hook.name == "responseheaders" and called.count("stream"):
            flow.response.stream = True

    with taddons.context():
        ctx.master.addons.handle_lifecycle = handle  # type: ignore[method-assign,assignment]  # of this test's master
        yield called
