"""The addon beside an interface: shows flows in its list, including those of the hub's own requests.

It runs after all other addons. Without an interface it is not loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mitmproxy import connection, ctx, http
from mitmproxy.flow import Error
from mitmproxy.proxy.layers.websocket import WebsocketEndHook

from addons.link.drills import Drills
from addons.link.request_records import RequestRecord
from addons.requests.caller import masked
from addons.requests.request_context import context_of
from addons.server.messages import refuse
from addons.telemetry.labels import HUB
from addons.ui.flows import interventions
from addons.ui.flows.annotations import ARROW, OWN, component_of
from addons.ui.flows.bodies import MAX_ACTIVE, ByteBudget, decoded
from addons.ui.flows.flow_records import record_of
from addons.ui.flows.flows import Flows
from addons.ui.flows.interface import RetainedFlows, begin_interface, web_address
from addons.ui.flows.live_watches import MAX_ALL
from addons.ui.masking import Visible
from addons.ui.running_hub import RunningHub
from kube.errors import StatusError

if TYPE_CHECKING:
    from mitmproxy.addons.dumper import Dumper
    from mitmproxy.addons.save import Save
    from mitmproxy.master import Master

NOTE = b"not held: the hub reads this answer itself, %d bytes of it so far\n"


class InterfaceFlows(Flows):
    """Shows and saves flows like mitmproxy's own addons, and removes the oldest."""

    name = "edgehub-flows"

    def __init__(self, visible: Callable[[], Visible], drills: Drills) -> None:
        master = ctx.master
        super().__init__(
            *(visible, drills, master.addons.trigger, _is_intercepted),
            ByteBudget(MAX_ACTIVE),
            ByteBudget(MAX_ALL),
        )
        self._save = save_when_over(master)
        report_watch_ends(master)
        view = master.addons.get("view")
        self._retained = RetainedFlows(view.remove) if view is not None else None
        if view is not None:
            view.sig_store_remove.connect(self._removed)
            view.sig_store_refresh.connect(self._cleared)

    def start(self, hub: RunningHub) -> None:
        """Set the running hub, and list its own requests if the option is set."""
        super().start(hub)
        view = ctx.master.addons.get("view")
        if view is not None and hub.settings.show_own_requests:
            shown = OwnRequestsShown(lambda flow: view.add([flow]), self._own_ended)
            hub.records.own_requests.listeners.append(shown.record_changed)

    def running(self) -> None:
        begin_interface(ctx.master)

    def web_address(self) -> str:
        """Return mitmweb's URL with its token; "" without a web interface."""
        return web_address(ctx.master)

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        if flow.is_replay == "request":
            self._forget(flow)
            try:
                if flow.response is None:
                    interventions.check_replay(flow, context_of(flow))
            except StatusError as error:
                refuse(flow, error)
        super().requestheaders(flow)

    async def response(self, flow: http.HTTPFlow) -> None:
        if flow.intercepted:
            await self.hold_answer(flow)
        self.ended(flow)

    def error(self, flow: http.HTTPFlow) -> None:
        self.ended(flow)

    def _over(self, flow: http.HTTPFlow) -> None:
        if flow.websocket is not None:
            self._trigger(WebsocketEndHook(flow))
        else:
            self._save(flow)
        if self._retained is not None:
            self._retained.add(flow, is_own=False)

    def _own_ended(self, flow: http.HTTPFlow) -> None:
        if self._retained is not None:
            self._retained.add(flow, is_own=True)
        self._update(flow)

    def _forget(self, flow: http.HTTPFlow) -> None:
        if self._retained is not None:
            self._retained.forget(flow)

    def _removed(self, flow: http.HTTPFlow) -> None:
        """Drop the watch of a flow that was removed from the interface, by the user or by a bound."""
        watch = self._watches.pop(flow.id, None)
        if watch is not None:
            watch.removed()
        self._forget(flow)

    def _cleared(self) -> None:
        for watch in self._watches.values():
            watch.removed()
        self._watches.clear()
        if self._retained is not None:
            self._retained.clear()


def _is_intercepted(flow: http.HTTPFlow) -> bool:
    """Whether mitmproxy's addon `intercept` would intercept the flow."""
    intercept = ctx.master.addons.get("intercept")
    return intercept is not None and bool(intercept.should_intercept(flow))


class OwnRequestsShown:
    """Creates a flow for each of the hub's own requests, without headers, which contain credentials, and without
    bodies.
    """

    def __init__(
        self, add: Callable[[http.HTTPFlow], object], update: Callable[[http.HTTPFlow], object]
    ) -> None:
        """`add` shows a new flow, `update` one that has ended."""
        self._add = add
        self._update = update
        self._open: dict[RequestRecord, http.HTTPFlow] = {}

    def record_changed(self, record: RequestRecord) -> None:
        """Show the beginning or the end of a request."""
        flow = self._open.pop(record, None)
        if flow is None:
            flow = self._open[record] = _begun(record)
            self._add(flow)
            return
        if record.status:
            flow.response = http.Response.make(record.status, NOTE % record.received)
            flow.response.timestamp_start = flow.response.timestamp_end = record.ended
        else:
            flow.error = Error(record.failure or "left before an answer came", record.ended)
        self._update(flow)


def _begun(record: RequestRecord) -> http.HTTPFlow:
    client = connection.Client(peername=("", 0), sockname=("", 0), timestamp_start=record.began)
    flow = http.HTTPFlow(client, connection.Server(address=None))
    flow.request = http.Request.make(record.method, record.server + masked(record.target.encode()).decode())
    flow.request.timestamp_start = flow.request.timestamp_end = record.began
    flow.marked = OWN
    flow.comment = ARROW.join((HUB, "own request", f"identity {record.credential_source}"))
    return flow


def save_when_over(master: Master) -> Callable[[http.HTTPFlow], None]:
    """Replace the HTTP hooks of mitmproxy's addon `save`. Return a function that saves an ended flow.

    mitmproxy saves a flow (`-w`, `save_stream_file`) when the answer is complete. At that time the flow lacks streamed
    pieces, and may contain values of a Secret that the hub buffers to cache. Protobuf bodies are saved as text, because
    other mitmproxy programs cannot read them. mitmproxy looks up hooks at each call, and still saves watches, which end
    by a WebSocket hook.
    """
    save: Save | None = master.addons.get("save")
    if save is None:
        return _nothing
    for hook in ("response", "error"):
        setattr(save, hook, _nothing)

    def save_decoded(flow: http.HTTPFlow) -> None:
        with decoded(flow, record_of(flow).visible):
            save.save_flow(flow)

    return save_decoded


def report_watch_ends(master: Master) -> None:
    """Make mitmdump report the end of a watch as such: events are shown as messages of a WebSocket, whose end it would
    report.
    """
    dumper: Dumper | None = master.addons.get("dumper")
    if dumper is None:
        return

    def tell(flow: http.HTTPFlow) -> None:
        assert flow.websocket is not None
        if dumper.match(flow):
            who = "its client" if flow.websocket.closed_by_client else "the hub"
            dumper.echo(f"{component_of(flow)}: the watch of {flow.request.path} has ended, by {who}")

    setattr(dumper, WebsocketEndHook.name, tell)  # mitmproxy looks up hooks at each call


def _nothing(flow: http.HTTPFlow) -> None:
    """Replace a hook by one that does nothing."""
