"""Prepares each flow for display in an interface or an attached process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from weakref import WeakSet

from mitmproxy import http
from mitmproxy.hooks import Hook, UpdateHook
from mitmproxy.websocket import WebSocketMessage

from addons.link.drills import Drills
from addons.requests.caller import Listener
from addons.requests.request_context import RequestContext, context_of
from addons.server.messages import refuse
from addons.ui.flows import interventions
from addons.ui.flows.annotations import ARROW, comment_of, mark_of, remark, why_refused
from addons.ui.flows.bodies import NOTE, ByteBudget, Copy, keep
from addons.ui.flows.flow_records import FilteredRead, FlowRecord, remember
from addons.ui.flows.live_watches import Display, LiveWatch
from addons.ui.masking import Visible
from addons.ui.running_hub import RunningHub
from kube.errors import StatusError
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding

END_POLL_INTERVAL = 0.05
"""Seconds between checks of whether mitmproxy considers a flow ended."""
END_POLLS = 200
STREAMED = "not held: the hub streams this answer as it comes"
MASKED = "not held: it may have values of Secrets, which a held body shows; see --show-secrets"


@dataclass(slots=True)
class ActiveFlow:
    """The copies of a running flow's bodies."""

    request: Copy | None = None
    response: Copy | None = None
    watch: LiveWatch | None = None
    mitmproxy_holds: bool = False
    """Whether the complete answer is buffered before it is sent, so that edits of it reach the client."""


class Flows:
    """Sets marks, comments and bodies of flows, shows events of open watches, and validates edits."""

    def __init__(
        self,
        visible: Callable[[], Visible],
        drills: Drills,
        trigger: Callable[[Hook], object],
        is_to_be_held: Callable[[http.HTTPFlow], bool],
        copied: ByteBudget,
        events: ByteBudget,
    ) -> None:
        """`trigger` is called with a hook for a changed flow. `is_to_be_held` returns whether the user wants to
        intercept a flow.

        `copied` bounds the bodies copied at a time, `events` the messages of all watches.
        """
        self._visible = visible
        self._drills = drills
        self._trigger = trigger
        self._is_to_be_held = is_to_be_held
        self._copied = copied
        self._events = events
        self._hub: RunningHub | None = None
        self._open: dict[str, ActiveFlow] = {}
        self._watches: dict[str, LiveWatch] = {}
        self._settled: WeakSet[http.HTTPFlow] = WeakSet()

    def start(self, hub: RunningHub) -> None:
        """Set the running hub, which the content views query."""
        self._hub = hub

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        context = context_of(flow)
        if flow.is_replay != "request" and context is not None:
            flow.metadata[interventions.CALLER] = str(context.caller.credential_source)
        self._describe(flow, context, refusal=flow.response)
        filtered = FilteredRead(self._hub, context) if self._hub is not None and context is not None else None
        remember(flow, FlowRecord(filtered, self._visible()))
        active = self._open[flow.id] = ActiveFlow()
        if flow.response is not None or not flow.request.stream:
            return
        if self._is_to_be_held(flow) and self._may_be_held(context):
            flow.request.stream = False
            return
        flow.request.stream = active.request = Copy(flow.request.stream, self._copied)

    async def request(self, flow: http.HTTPFlow) -> None:
        """Wait until the user resumes an intercepted request, and refuse the request if an edit is not permitted."""
        if not flow.intercepted:
            return
        context, before = context_of(flow), interventions.Snapshot.of(flow.request)
        if not self._may_be_held(context):
            flow.resume()
            remark(flow, MASKED)
            return
        self._update(flow)
        await flow.wait_for_resume()
        try:
            interventions.check_edit(before, flow.request, context)
        except StatusError as error:
            refuse(flow, error)
            remark(flow, error.message)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        context, response = context_of(flow), flow.response
        if response is None or response.status_code == 101:
            return
        active = self._open.setdefault(flow.id, ActiveFlow())
        if active.response is not None:
            active.response.end()  # copy of an incomplete answer of a failed server
            active.response = None
        if context is not None and context.stream_too_large is not None:
            copy = active.response = Copy(context.stream_too_large, self._copied)
            context.stream_too_large = copy.joined
        if not response.stream:
            active.mitmproxy_holds = True
            return
        if context is not None and context.info.verb == "watch" and response.status_code == 200:
            self._begin_watch(flow, context, active, response)
            if self._is_to_be_held(flow):
                remark(flow, STREAMED)
        else:
            copy = active.response = Copy(response.stream, self._copied)
            response.stream = copy
            if (
                context is not None
                and self._is_to_be_held(flow)
                and interventions.may_edit_answer(context)
                and self._may_be_held(context)
            ):
                # A body that is too large to be buffered is streamed.
                context.stream_too_large = copy.joined
                response.stream, active.mitmproxy_holds = False, True
        if context is not None and context.answerer is not None:
            _show_own_address(flow, context)

    def join(self, flow: http.HTTPFlow) -> None:
        """Show the rest of a flow that began before an interface was attached."""
        context, response = context_of(flow), flow.response
        self._describe(flow, context, refusal=None)
        active = self._open[flow.id] = ActiveFlow()
        if context is not None and context.answerer is not None:
            _show_own_address(flow, context)
        if response is None:
            return
        active.mitmproxy_holds = not response.stream
        if context is not None and context.info.verb == "watch" and response.stream:
            self._begin_watch(flow, context, active, response, is_joined=True)

    def _describe(
        self, flow: http.HTTPFlow, context: RequestContext | None, refusal: http.Response | None
    ) -> None:
        flow.marked = mark_of(context, refused=refusal is not None)
        comment = comment_of(context, refusal, self._drills.current)
        flow.comment = ARROW.join((comment, f"{flow.request.method} {flow.request.path}"))

    def leave(self, flows: Iterable[http.HTTPFlow]) -> None:
        """Stop displaying running flows; they continue without copies."""
        for flow in flows:
            active = self._open.pop(flow.id, ActiveFlow())
            for copy in (active.request, active.response):
                if copy is not None:
                    copy.stop()
            if active.watch is not None and flow.response is not None:
                flow.response.stream = active.watch.then
                active.watch.end(by_client=False)
                flow.websocket = None

    def is_settled(self, flow: http.HTTPFlow) -> bool:
        """Whether a flow has ended, and its bodies were replaced by what may be shown.

        Before that, its bodies may contain values of Secrets.
        """
        return flow in self._settled

    def take_messages(self, flow: http.HTTPFlow) -> list[WebSocketMessage]:
        """Return and remove the messages of a watch since the last call."""
        watch = self._watches.get(flow.id)
        if watch is None:
            return []
        if self.is_settled(flow):
            del self._watches[flow.id]
        return watch.messages()

    def ended(self, flow: http.HTTPFlow) -> None:
        """Handle the end of a flow, with or without an answer."""
        self._end(flow, by_client=flow.error is not None and "disconnect" in flow.error.msg.lower())

    def _may_be_held(self, context: RequestContext | None) -> bool:
        """Whether a flow may be intercepted, although its body is then shown unmasked."""
        return self._visible().secrets or not _is_secret(context)

    async def hold_answer(self, flow: http.HTTPFlow) -> None:
        """Wait until the user resumes an intercepted answer. A streamed body has been sent already, so it is resumed at
        once.
        """
        assert flow.response is not None
        active, may_be_held = self._open.get(flow.id), self._may_be_held(context_of(flow))
        if not may_be_held or active is None or not active.mitmproxy_holds or flow.response.stream:
            flow.resume()
            remark(flow, STREAMED if may_be_held else MASKED)
            return
        before = flow.response.copy()
        self._update(flow)
        await flow.wait_for_resume()
        try:
            interventions.check_answer(before, flow.response, context_of(flow))
        except StatusError as error:
            flow.response = before
            remark(flow, error.message)

    def _begin_watch(
        self,
        flow: http.HTTPFlow,
        context: RequestContext,
        active: ActiveFlow,
        response: http.Response,
        *,
        is_joined: bool = False,
    ) -> None:
        if response.headers.get("content-encoding"):
            remark(flow, "the watch is compressed, so its events are not shown")
            return
        protobuf = str(Encoding.PROTOBUF) in response.headers.get("content-type", "")
        filtered = None
        if self._hub is not None and context.route is not None and context.route.filtered_by:
            filtered = FilteredRead(self._hub, context)
        active.watch = LiveWatch(
            flow,
            codec_for(Encoding.PROTOBUF if protobuf else Encoding.JSON),
            response.stream,
            Display(self._update, self._events, self._visible()),
            filtered=filtered,
            is_joined=is_joined,
        )
        # Shown instead of "content missing".
        response.data.content = NOTE + b"each event is a message: see WebSocket\n"
        self._watches[flow.id] = active.watch
        response.stream = active.watch

    def _end(self, flow: http.HTTPFlow, *, by_client: bool) -> None:
        context, active = context_of(flow), self._open.pop(flow.id, None)
        _show_own_address(flow, context)
        if flow.response is not None and flow.response.status_code >= 400 and _is_own_answer(flow, context):
            remark(flow, f"refused: {why_refused(flow.response)}")
        if active is not None and active.watch is not None:
            active.watch.end(by_client=by_client)
        is_secret = _is_secret(context)
        left: list[http.Message] = []
        if active is not None:
            # A streamed body has been sent, so the flow may contain another text instead.
            for message, copy in ((flow.request, active.request), (flow.response, active.response)):
                if message is not None and copy is not None and (copy.size or message.raw_content is None):
                    self._leave(flow, message, copy.end(), copy.size, is_secret=is_secret)
                    left.append(message)
        asyncio.get_running_loop().call_soon(self._settle, flow, context, left, END_POLLS)

    def _settle(
        self, flow: http.HTTPFlow, context: RequestContext | None, left: list[http.Message], looks: int
    ) -> None:
        """Once mitmproxy has sent a flow completely, replace buffered bodies by what may be shown."""
        if flow.websocket is not None:
            flow.live = False  # mitmproxy would wait for the end of a WebSocket
        if flow.live and looks:
            asyncio.get_running_loop().call_later(
                END_POLL_INTERVAL, self._settle, flow, context, left, looks - 1
            )
            return
        is_secret = _is_secret(context)
        for message in (flow.request, flow.response):
            body = message.raw_content if message is not None and flow.websocket is None else None
            if message is not None and body and not any(message is part for part in left):
                self._leave(flow, message, body, len(body), is_secret=is_secret)
        self._over(flow)
        self._settled.add(flow)
        self._update(flow)

    def _leave(
        self, flow: http.HTTPFlow, message: http.Message, body: bytes | None, size: int, *, is_secret: bool
    ) -> None:
        said = keep(message, body, size, is_secret=is_secret, visible=self._visible())
        if said:
            remark(flow, said)
            if message is flow.request:
                flow.metadata[interventions.TEXT_BODY] = True

    def _update(self, flow: http.HTTPFlow) -> None:
        self._trigger(UpdateHook([flow]))

    def _over(self, flow: http.HTTPFlow) -> None:
        """Handle a flow that contains only what may be shown. Overridden to save it."""


def _show_own_address(flow: http.HTTPFlow, context: RequestContext | None) -> None:
    """Show the hub's address that the client called, instead of the server's."""
    if context is None:
        return
    host, port = flow.client_conn.sockname[:2]
    flow.request.data.scheme = b"https" if context.listener is Listener.TLS else b"http"
    flow.request.data.port = port
    flow.request.host = host


def _is_own_answer(flow: http.HTTPFlow, context: RequestContext | None) -> bool:
    """Whether the hub itself answered the request, without a server, after it had a route."""
    return context is not None and context.route is not None and flow.server_conn.timestamp_start is None


def _is_secret(context: RequestContext | None) -> bool:
    """Whether the bodies of a flow may contain values of Secrets, or tokens."""
    if context is None or context.info.type is None:
        return False
    resource = context.info.type.resource
    return resource in ("secrets", "tokenreviews") or context.info.subresource == "token"
