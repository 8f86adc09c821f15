"""Interfaces attached to a hub without its own interface, and the hub after they disconnect."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator

import pytest
from mitmproxy.http import HTTPFlow
from mitmproxy.test import taddons, tflow, tutils
from mitmproxy.websocket import WebSocketData

from addons.link.drills import Drills
from addons.requests.request_context import begin
from addons.settings import Settings
from addons.ui.attached.attachments import Attachments
from addons.ui.attached.flow_feed import FlowFeed
from addons.ui.commands.attached_flows import AttachedFlows, Update, records
from addons.ui.flows.flows import Flows
from tests.addons.support.samples import SERVICES, request_context


@pytest.fixture(autouse=True)
def master() -> Iterator[None]:
    """A mitmproxy master without an interface."""
    with taddons.context():
        yield


def attachments() -> Attachments:
    return Attachments(Settings, Drills())


def flow_of(target: str, content: bytes = b"") -> HTTPFlow:
    response = tutils.tresp(content=content, headers=((b"content-type", b"application/json"),))
    flow = tflow.tflow(req=tutils.treq(path=target.encode()), resp=response)
    flow.live = True
    begin(flow, request_context(target))
    return flow


async def received_updates(feed: FlowFeed, flows: Flows, into: AttachedFlows) -> list[Update]:
    await feed.wait()
    sent = feed.next(flows)
    return [into.apply_record(each) for each in records(io.BytesIO(sent)) if "flow" in each]


async def test_a_running_watch_is_shown_to_an_attached_interface_and_then_restored() -> None:
    def messages_of(flow: HTTPFlow) -> WebSocketData | None:
        """Return the attribute by which mitmproxy recognises a WebSocket."""
        return flow.websocket

    class Streams:
        """Write an open watch: the pieces that its client gets."""

        def __init__(self) -> None:
            self.sent = b""

        def __call__(self, piece: bytes) -> bytes:
            self.sent += piece
            return piece

    running, watch, stream = attachments(), flow_of(f"{SERVICES}?watch=true"), Streams()
    assert watch.response is not None
    watch.response.stream = stream
    running.requestheaders(watch)
    running.responseheaders(watch)
    feed, flows = running.attach()
    seen = AttachedFlows()
    (first,) = await received_updates(feed, flows, seen)
    assert callable(watch.response.stream)
    event = b'{"type":"ADDED","object":{"kind":"Service","apiVersion":"v1","metadata":{"name":"web"}}}\n'
    for piece in (b'end of an event that began before"}}}\n', event):
        watch.response.stream(piece)
    (second,) = await received_updates(feed, flows, seen)
    assert second.flow is first.flow
    assert second.flow.websocket is not None
    assert [b"name: web" in each.content for each in second.flow.websocket.messages] == [True]
    assert watch.websocket is not None
    assert watch.websocket.messages == [], "what is sent is not kept in the hub, too"
    running.detach(feed)
    assert watch.response.stream is stream
    assert messages_of(watch) is None
    watch.response.stream(event)
    assert stream.sent.endswith(event * 2)


async def test_a_request_is_shown_with_its_body_and_secrets_without_values() -> None:
    running, seen = attachments(), AttachedFlows()
    feed, flows = running.attach()
    body = b'{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s"},"data":{"key":"c2VjcmV0"}}'
    for target in (SERVICES, "/api/v1/namespaces/default/secrets/s"):
        flow = flow_of(target, body)
        running.requestheaders(flow)
        running.responseheaders(flow)
        flow.live = False
        running.ended(flow)
        # The body is shown after mitmproxy has sent it.
        (update,) = await received_updates(feed, flows, seen)
        assert update.flow.response is not None
        assert update.flow.response.raw_content is None, "it may have what nobody may see"
        (update,) = await received_updates(feed, flows, seen)
        assert update.is_over
        body_shown = update.flow.response.content if update.flow.response is not None else b""
        assert (b"c2VjcmV0" in (body_shown or b"")) is (target == SERVICES)
    running.detach(feed)


async def test_a_refused_request_is_shown_too() -> None:
    running, seen = attachments(), AttachedFlows()
    feed, flows = running.attach()
    refused = flow_of(SERVICES)
    refused.live = False
    running.ended(refused)
    await asyncio.sleep(0)
    (update,) = await received_updates(feed, flows, seen)
    assert (update.is_over, "refused" in update.flow.comment) == (True, True)
    running.detach(feed)


async def test_a_newly_attached_interface_replaces_the_previous_one() -> None:
    running = attachments()
    first, _ = running.attach()
    second, _ = running.attach()
    assert (first.is_closed, second.is_closed) == (True, False)
    running.detach(first)
    running.requestheaders(flow_of(SERVICES))
    await second.wait()
    running.detach(second)
    assert second.is_closed


def test_without_an_attached_process_flows_are_not_recorded() -> None:
    running, flow = attachments(), flow_of(SERVICES)
    running.requestheaders(flow)
    running.responseheaders(flow)
    running.ended(flow)
    assert (flow.comment, running._running) == ("", {})
