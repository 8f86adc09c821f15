"""The addon for interfaces, hook by hook: how a flow is displayed, intercepted and resumed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
from mitmproxy import http
from mitmproxy.addons.intercept import Intercept
from mitmproxy.addons.view import View
from mitmproxy.flow import Error
from mitmproxy.test import taddons

from addons.link.drills import Drills
from addons.ui.flows.annotations import ROUTES
from addons.ui.flows.bodies import MAX_SHOWN_BODY, Copy
from addons.ui.flows.interface_flows import InterfaceFlows
from addons.ui.flows.interventions import CALLER
from addons.ui.flows.live_watches import LiveWatch
from addons.ui.masking import Visible
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.addons.support.observed import until
from tests.addons.support.routed import Routed
from tests.addons.support.samples import SERVICES, raw
from tests.kube.support import recorded

LIST = f"{SERVICES}?resourceVersion=0"


class Interface:
    """A mitmproxy with the flow list and the addon, and flows that pass through both."""

    def __init__(self) -> None:
        self.view, self.intercept, self.routed = View(), Intercept(), Routed()
        self.context = taddons.context(self.view, self.intercept)
        self.flows = InterfaceFlows(Visible, Drills())
        self.notified: list[http.HTTPFlow] = []
        self.context.master.addons.add(self.flows)

    async def request(self, target: str = LIST, component: str = "reader", **how: object) -> http.HTTPFlow:
        flow = await self.routed.request(target, component, **how)
        self.begin(flow)
        return flow

    def begin(self, flow: http.HTTPFlow) -> None:
        flow.live = True
        self.flows.requestheaders(flow)
        self.view.add([flow])

    async def answer(
        self,
        flow: http.HTTPFlow,
        body: bytes = b"",
        *,
        stream: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> http.HTTPFlow:
        """Respond like mitmproxy: the head, the body streamed or complete, the end."""
        flow.response = http.Response.make(
            200, b"" if stream else body, {"Content-Type": "application/json", **(headers or {})}
        )
        flow.response.stream = stream
        self.flows.responseheaders(flow)
        if callable(flow.response.stream):
            flow.response.data.content = None
            for at in range(0, len(body), 65_536):
                flow.response.stream(body[at : at + 65_536])
        self.intercept.response(flow)
        await self.flows.response(flow)
        flow.live = False
        await asyncio.sleep(0.01)  # the addon updates the flow after mitmproxy has sent everything
        return flow


@pytest.fixture
async def interface() -> AsyncIterator[Interface]:
    made = Interface()
    with made.context:
        yield made


async def test_a_flow_shows_the_components_own_request(interface: Interface) -> None:
    flow = await interface.request(**{"User-Agent": "reader/v1"})
    assert flow.marked in [mark for mark, _ in ROUTES.values()]
    assert flow.comment == f"reader ▸ view ▸ discardcloudservice ▸ GET {LIST}"
    assert flow.request.headers["User-Agent"] == "reader/v1"
    await interface.answer(flow, b"{}")
    host, port = flow.client_conn.sockname[:2]
    assert flow.request.url == f"http://{host}:{port}{LIST}"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_small_body_is_retained_and_a_large_one_replaced_by_a_note(
    interface: Interface, *, stream: bool
) -> None:
    small = await interface.answer(await interface.request(), b'{"a": 1}', stream=stream)
    assert small.response is not None
    assert small.response.content == b'{"a": 1}'
    assert small.response.data.content is not None
    large = await interface.answer(await interface.request(), b"x" * (MAX_SHOWN_BODY + 1), stream=stream)
    await until(lambda: "too many to keep" in large.comment)
    assert large.response is not None
    assert len(large.response.content or b"") < 100


@pytest.mark.parametrize("stream", [True, False])
async def test_secrets_are_hidden_after_they_are_sent(interface: Interface, *, stream: bool) -> None:
    secret = raw({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "c2VjcmV0"}})
    flow = await interface.request("/api/v1/namespaces/default/secrets/s", "other")
    flow.request.content = secret
    await interface.answer(flow, secret, stream=stream)
    await until(lambda: "secrets are hidden" in flow.comment)
    assert "c2VjcmV0" not in str(flow.get_state())


@pytest.mark.parametrize("stream", [True, False])
async def test_flows_with_secrets_are_not_intercepted(interface: Interface, *, stream: bool) -> None:
    interface.context.configure(interface.intercept, intercept="~u secrets")
    flow = await interface.routed.request("/api/v1/namespaces/default/secrets", "other", method="POST")
    flow.request.stream = lambda piece: piece
    interface.begin(flow)
    assert isinstance(flow.request.stream, Copy)
    interface.intercept.request(flow)
    await interface.flows.request(flow)
    assert not flow.intercepted
    await interface.answer(flow, b"{}", stream=stream)
    assert not flow.intercepted
    assert "not held: it may have values of Secrets" in flow.comment


async def test_a_streamed_request_body_is_retained(interface: Interface) -> None:
    flow = await interface.routed.request("/api/v1/namespaces/default/pods", "other", method="POST")
    flow.request.stream = lambda piece: piece
    interface.begin(flow)
    assert isinstance(flow.request.stream, Copy)
    assert flow.request.stream(b'{"a": 1}') == b'{"a": 1}'
    flow.request.data.content = None
    await interface.answer(flow, b"{}")
    assert flow.request.content == b'{"a": 1}'


@pytest.mark.parametrize("encoding", Encoding)
async def test_a_watch_is_live_until_it_ends(interface: Interface, encoding: Encoding) -> None:
    codec = codec_for(encoding)
    flow = await interface.request(f"{LIST}&watch=true")
    flow.response = http.Response.make(200, b"", {"Content-Type": codec.watch_content_type})
    flow.response.stream = True
    interface.flows.responseheaders(flow)
    assert isinstance(flow.response.stream, LiveWatch)
    flow.response.stream(codec.encode_event("ADDED", *recorded.single("services.single", encoding)))
    messages = flow.websocket.messages if flow.websocket is not None else []
    await until(lambda: len(messages) == 1)
    assert b"type: ADDED" in messages[0].content
    assert b"see WebSocket" in (flow.response.content or b"")
    await interface.flows.response(flow)
    await until(lambda: not flow.live)
    interface.view.remove([flow])
    assert interface.flows._events.taken == 0


async def test_a_compressed_watch_is_not_shown(interface: Interface) -> None:
    flow = await interface.answer(
        await interface.request(f"{LIST}&watch=true"), b"x", headers={"Content-Encoding": "gzip"}
    )
    assert "the watch is compressed" in flow.comment
    assert flow.websocket is None


async def test_an_upgraded_connection_is_unchanged(interface: Interface) -> None:
    flow = await interface.request("/api/v1/namespaces/default/pods/web/exec", "other")
    flow.response = http.Response.make(101)
    flow.response.stream = True
    interface.flows.responseheaders(flow)
    assert flow.response.stream is True


async def test_a_disconnected_client_is_marked_on_the_websocket(interface: Interface) -> None:
    flow = await interface.request(f"{LIST}&watch=true")
    flow.response = http.Response.make(200, b"", {"Content-Type": "application/json"})
    flow.response.stream = True
    interface.flows.responseheaders(flow)
    flow.error, flow.live = Error("Client disconnected."), False
    interface.flows.error(flow)
    assert flow.websocket is not None
    assert flow.websocket.closed_by_client is True


async def resumed(flow: http.HTTPFlow, work: asyncio.Task[None], edit: Callable[[], None]) -> None:
    """Edit an intercepted flow as a user, and resume it."""
    await asyncio.sleep(0.01)
    assert flow.intercepted
    assert not work.done()
    edit()
    flow.resume()
    await work


@pytest.mark.parametrize(
    ("target", "component", "holds"), [("/version", "other", True), (LIST, "reader", False)]
)
async def test_an_edit_of_a_request_is_applied_or_refused(
    interface: Interface, target: str, component: str, *, holds: bool
) -> None:
    interface.context.configure(interface.intercept, intercept="~q")
    flow = await interface.request(target, component)
    interface.intercept.request(flow)
    held = asyncio.create_task(interface.flows.request(flow))
    await resumed(flow, held, lambda: setattr(flow.request, "content", b"another"))
    assert (flow.response is None) is holds
    assert ("edit rejected" in flow.comment) is not holds


async def test_a_request_to_be_intercepted_is_not_streamed(interface: Interface) -> None:
    interface.context.configure(interface.intercept, intercept="~q")
    flow = await interface.routed.request("/api/v1/namespaces/default/pods", "other", method="POST")
    flow.request.stream = lambda piece: piece
    interface.begin(flow)
    assert not callable(flow.request.stream)


async def test_a_relayed_response_is_intercepted_and_edited(interface: Interface) -> None:
    flow = await interface.request("/version", "other")
    interface.context.configure(interface.intercept, intercept="~s")
    flow.response = http.Response.make(200, b"{}")
    flow.response.stream = True
    interface.flows.responseheaders(flow)
    assert flow.response.stream is False
    interface.intercept.response(flow)
    held = asyncio.create_task(interface.flows.response(flow))
    await resumed(flow, held, lambda: setattr(flow.response, "content", b"another"))
    assert flow.response.content == b"another"


async def test_a_response_from_a_view_cannot_be_intercepted(interface: Interface) -> None:
    flow = await interface.request()
    interface.context.configure(interface.intercept, intercept="~s")
    await interface.answer(flow, b"{}")
    assert not flow.intercepted
    assert "not held: the hub streams this answer" in flow.comment


async def test_a_replay_as_another_caller_is_403(interface: Interface) -> None:
    flow = await interface.answer(await interface.request("/version", "other"), b"{}")
    assert flow.metadata[CALLER] == "hub"
    flow.metadata[CALLER] = "own"
    flow.is_replay, flow.response = "request", None
    interface.begin(flow)
    assert flow.response is not None
    assert flow.response.status_code == 403
    assert "not replayed: " in flow.comment


async def test_a_truncated_body_leaves_no_copy(interface: Interface) -> None:
    flow = await interface.request("/version", "other")
    for body in (b"half", b"whole"):
        flow.response = http.Response.make(200, b"")
        flow.response.stream = True
        interface.flows.responseheaders(flow)
        assert isinstance(flow.response.stream, Copy)
        flow.response.stream(body)
    await interface.flows.response(flow)
    flow.live = False
    await until(lambda: flow.response is not None and flow.response.content == b"whole")
    assert interface.flows._copied.taken == 0
