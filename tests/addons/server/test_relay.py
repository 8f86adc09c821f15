"""A relayed request at its server: the data that the hub sends, and when it reads more of the response."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from mitmproxy import http

from addons.requests.request_context import RequestContext
from addons.requests.route_decision import Route, RouteKind
from addons.server.limits import client_addresses
from addons.server.messages import SWITCHING_PROTOCOLS
from addons.server.relay import finish
from addons.server.serve import serve
from addons.telemetry import metrics
from kube.errors import bad_request
from kube.http.transport.connection_pool import Connection
from kube.http.transport.response_sink import NotProcessed, ResponseSink
from tests.addons.support.noted_request import RecordedRequest, hooks_of
from tests.addons.support.observed import value_of
from tests.addons.support.samples import lead


class Server:
    """A connection to a server that records the requests, and the pool of one identity."""

    scheme, host, port = "https", "cloud", 6443

    def __init__(self) -> None:
        self.did: list[tuple[object, ...]] = []
        self.is_reusable = True
        self.refuses: Exception | None = None
        self.opens = asyncio.Event()
        self.waiting = 0
        self.response = ResponseSink()

    def available(self) -> Connection | None:
        return self._connection if self.is_reusable else None

    async def opened(self) -> Connection:
        await self.opens.wait()
        if self.refuses is not None:
            raise self.refuses
        return self._connection

    @property
    def _connection(self) -> Connection:
        made: Any = self
        return made  # type: ignore[no-any-return]  # it has what a relayed answer calls

    def send(self, fields: object, body: bytes, response: ResponseSink, *, is_complete: bool) -> None:
        self.response = response
        if isinstance(self.refuses, Exception):
            raise self.refuses
        self.did.append(("send", body, is_complete))

    def send_more(self, _response: ResponseSink, data: bytes, *, is_last: bool) -> None:
        self.did.append(("more", data, is_last))

    def unsent(self, _response: ResponseSink) -> int:
        return self.waiting

    def acknowledge_data(self, _response: ResponseSink, size: int) -> None:
        self.did.append(("ack", size))

    def release(self, _response: ResponseSink) -> None:
        self.did.append(("release",))


class Relay:
    """A relayed request with its client and its server. A context manager."""

    def __init__(
        self, method: str = "PUT", body: bytes | None = b"body", *, is_streamed: bool = False
    ) -> None:
        self.request, self.server = RecordedRequest(method, body), Server()
        self._is_streamed = is_streamed
        self.flow: http.HTTPFlow | None = None
        self.hooks: list[str] = []

    @contextmanager
    def running(self) -> Iterator[Relay]:
        def decide(flow: http.HTTPFlow, context: RequestContext) -> None:
            self.flow = flow
            lead(context, self.server)
            flow.request.stream = self._is_streamed

        with hooks_of(decide) as self.hooks:
            self.hooks.append("stream")
            self.task = asyncio.create_task(serve(self.request))
            yield self

    async def says(self, *parts: bytes | int | ConnectionResetError | None) -> None:
        """Let the server send these in one go: a status, pieces, an error, or the end (None)."""
        await run_callbacks()
        response = self.server.response
        for part in parts:
            if isinstance(part, int):
                response.begin(part, [])
            elif isinstance(part, bytes):
                response.add(part, len(part))
            elif part is None:
                response.end()
            else:
                response.fail(part)
        response.settle()
        await run_callbacks()

    @property
    def sent(self) -> list[object]:
        """Return the kinds of the sent parts of the response, and the data."""
        return [part[1] if part[0] == "data" else part[0] for part in self.request.parts]


async def run_callbacks() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_buffered_body_is_sent_at_once_and_the_response_streamed() -> None:
    with Relay().running() as relay:
        await relay.says(200, b"half")
        assert relay.server.did == [("send", b"body", True), ("ack", 4)]
        await relay.says(b"more", None)
        await relay.task
    assert relay.sent == ["head", b"half", b"more", "end"]
    assert relay.server.did[-1] == ("release",)
    assert relay.hooks[1:] == ["requestheaders", "request", "responseheaders", "response"]


async def test_a_streamed_body_counts_as_unsent_until_the_server_reads_it() -> None:
    relay = Relay(is_streamed=True)
    relay.server.waiting = 3
    with relay.running():
        await run_callbacks()
        assert relay.request.address.unsent.size == 3
        assert relay.server.did == [("send", b"", False), ("more", b"body", False), ("more", b"", True)]
        relay.server.waiting = 0
        await relay.says(200, None)
        await relay.task
    assert relay.request.address.unsent.size == 0
    assert relay.hooks[1:] == ["requestheaders", "request", "responseheaders", "response"]


@pytest.mark.parametrize("has_begun", [False, True])
async def test_the_longest_waiting_body_is_aborted(monkeypatch: pytest.MonkeyPatch, has_begun: bool) -> None:
    monkeypatch.setattr(client_addresses, "MAX_UNSENT_OF_ADDRESS", 10)
    relay, refused = Relay(is_streamed=True), value_of(metrics.REQUESTS_REFUSED.labels("429"))
    with relay.running():
        await run_callbacks()
        if has_begun:
            await relay.says(200, b"begun")
        relay.server.waiting = 11
        await relay.says()
        await relay.task
    assert value_of(metrics.REQUESTS_REFUSED.labels("429")) == refused + 1
    assert relay.request.address.unsent.size == 0
    assert relay.sent[-1] == ("broken off" if has_begun else "end")
    assert has_begun or relay.request.parts[0][1] == 429
    assert relay.server.did[-1] == ("release",)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ConnectionRefusedError("connection refused"), b"connection refused"),
        (TimeoutError(), b"TimeoutError"),
        (RuntimeError("secret"), b"the hub could not open a connection"),
    ],
)
async def test_a_failed_connection_is_502(error: Exception, why: bytes) -> None:
    relay = Relay()
    relay.server.is_reusable, relay.server.refuses = False, error
    relay.server.opens.set()
    with relay.running():
        await relay.task
    (_, status, _), (_, body), _ = relay.request.parts
    assert status == 502
    assert isinstance(body, bytes)
    assert why in body
    assert relay.hooks[-1] == "error"


async def test_no_request_is_sent_if_the_client_disconnects_during_the_connect() -> None:
    relay = Relay()
    relay.server.is_reusable = False
    with relay.running():
        await run_callbacks()
        relay.task.cancel()
        relay.server.opens.set()
        await relay.task
    assert (relay.server.did, relay.sent, relay.hooks[-1]) == ([], [], "error")


async def test_a_head_that_cannot_be_encoded_is_400() -> None:
    relay = Relay()
    relay.server.refuses = bad_request("no")
    with relay.running():
        await relay.task
    assert relay.request.parts[0][1] == 400


@pytest.mark.parametrize("has_begun", [False, True])
async def test_an_unprocessed_request_is_repeated_before_the_client_gets_a_response(
    has_begun: bool,
) -> None:
    resent = value_of(metrics.REQUESTS_RESENT)
    with Relay().running() as relay:
        if has_begun:
            await relay.says(200, b"begun")
        await relay.says(NotProcessed("refused"))
        sends = [done for done in relay.server.did if done[0] == "send"]
        assert sends == [("send", b"body", True)] * (1 if has_begun else 2)
        assert (relay.sent[-1:] == ["broken off"]) is has_begun
        if not has_begun:
            await relay.says(200, None)
        await relay.task
    assert value_of(metrics.REQUESTS_RESENT) == resent + (not has_begun)


async def test_a_server_is_paused_for_a_client_that_does_not_read() -> None:
    relay = Relay("GET", None)
    relay.request.reads.clear()
    with relay.running():
        await relay.says(200, b"one")
        await relay.says(b"three")
        assert [done for done in relay.server.did if done[0] == "ack"] == []
        assert relay.request.held == len(b"three"), "beside the piece that waits itself"
        relay.request.reads.set()
        await run_callbacks()
        assert [done for done in relay.server.did if done[0] == "ack"] == [("ack", 3), ("ack", 5)]
        await relay.says(None)
        await relay.task
    assert relay.request.held == 0


async def test_after_an_upgrade_both_sides_send_until_one_closes() -> None:
    relay = Relay("GET", None)
    with relay.running():
        await relay.says(SWITCHING_PROTOCOLS)
        relay.request.inbox.put(b"up")
        await relay.says(b"down")
        assert ("more", b"up", False) in relay.server.did
        assert relay.sent == ["switched", b"down"]
        assert not relay.task.done()
        await relay.says(None)
        await relay.task
    assert relay.hooks[-1] == "response"


async def test_ending_a_watch_closes_a_running_one_and_answers_an_unstarted_one_502() -> None:
    with Relay().running() as relay:
        await relay.says(200, b"begun")
        assert relay.flow is not None
        finish(relay.flow, "the rules have changed")
        finish(relay.flow, "again")
        await relay.task
        assert relay.flow.error is None
    assert relay.sent == ["head", b"begun", "end"]
    assert relay.server.did[-1] == ("release",)
    with Relay().running() as relay:
        await run_callbacks()
        assert relay.flow is not None
        finish(relay.flow, "the rules have changed")
        await relay.task
        assert relay.flow.error is not None
        assert relay.flow.error.msg == "the rules have changed"
    assert relay.request.parts[0][1] == 502


async def test_a_request_whose_route_was_changed_by_an_addon_is_500() -> None:
    request, server = RecordedRequest("GET", None), Server()

    def decide(_: http.HTTPFlow, context: RequestContext) -> None:
        lead(context, server)
        context.route = Route(RouteKind.VIEW, "test")

    with hooks_of(decide):
        await serve(request)
    assert (request.parts[0][1], server.did) == (500, [])
