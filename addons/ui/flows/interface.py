"""Initial state of mitmproxy's interface (address, columns, filter), and bounds for the flows that it stores."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from mitmproxy import ctx, http

from addons.telemetry import metrics
from addons.ui.flows.annotations import DEFAULT_FILTER, component_of

if TYPE_CHECKING:
    from mitmproxy.master import Master

WEB_COLUMNS = ["timestamp", "method", "comment", "status", "size", "time"]
"""Columns of a flow in the browser. The comment fills the remaining width, and ends with the path."""


def begin_interface(master: Master) -> None:
    """Show components or full comments in the flow list, and print mitmweb's address at the terminal.

    The address contains a token, so it is never logged, because others may read the log.
    """
    if master.addons.get("consoleaddon") is not None:
        from addons.proxy.interface.console_list import list_components  # noqa: PLC0415 - imports the console

        list_components(master, component_of)
    if address := web_address(master):
        from addons.proxy.interface.web_style import show_full_comments  # noqa: PLC0415 - imports mitmweb

        show_full_comments(master)
        print(f"edgehub: open {address}", flush=True)


def choose_first_view() -> None:
    """Set display options that the user has not set."""
    is_web = ctx.master.addons.get("webauth") is not None
    # In the browser the filter is part of the address, where a user can remove it.
    defaults = {"web_columns": WEB_COLUMNS} if is_web else {"view_filter": DEFAULT_FILTER}
    for name, value in defaults.items():
        if name in ctx.options and getattr(ctx.options, name) == ctx.options.default(name):
            ctx.options.update(**{name: value})


def web_address(master: Master) -> str:
    """Return mitmweb's URL with its token and the hub's flow filter; "" without a web interface.

    A password set by the operator is not included. The filter is in the fragment, so that the page shows it in its
    search field, where a user can remove it.
    """
    auth = master.addons.get("webauth")
    if auth is None:
        return ""
    address: str = auth.web_url
    return f"{address}#/flows?s={quote(DEFAULT_FILTER, safe='')}"


MAX_FLOWS = 2_000
"""Maximum ended flows of components; a flow takes some 10 KB in addition to its body."""
MAX_OWN = 200
"""Maximum ended flows of the hub's own requests: probes, lists and reviews."""
MAX_RETAINED_FLOWS = 32 * 1024 * 1024
"""Maximum bytes of the bodies and events of all ended flows."""


class RetainedFlows:
    """The ended flows, in the order of their ends. Running flows must not be removed: that would kill their
    requests.
    """

    def __init__(self, remove: Callable[[Sequence[http.HTTPFlow]], object]) -> None:
        self._remove = remove
        self._flows: OrderedDict[str, tuple[http.HTTPFlow, int]] = OrderedDict()
        self._own: OrderedDict[str, tuple[http.HTTPFlow, int]] = OrderedDict()
        self._bytes = 0

    def add(self, flow: http.HTTPFlow, *, is_own: bool) -> None:
        """Add an ended flow, and remove the oldest flows beyond a bound."""
        self.forget(flow)
        size = size_of(flow)
        (self._own if is_own else self._flows)[flow.id] = (flow, size)
        self._bytes += size
        while len(self._own) > MAX_OWN:
            self._pop(self._own)
        while len(self._flows) > MAX_FLOWS or (self._bytes > MAX_RETAINED_FLOWS and len(self._flows) > 1):
            self._pop(self._flows)

    def forget(self, flow: http.HTTPFlow) -> None:
        """Remove a flow from the bookkeeping: it is replayed, or the user has removed it."""
        for table in (self._flows, self._own):
            _, size = table.pop(flow.id, (None, 0))
            self._bytes -= size

    def clear(self) -> None:
        self._flows.clear()
        self._own.clear()
        self._bytes = 0

    def _pop(self, table: OrderedDict[str, tuple[http.HTTPFlow, int]]) -> None:
        _, (flow, size) = table.popitem(last=False)
        self._bytes -= size
        if flow.live or flow.intercepted:
            return  # the flow is being replayed
        metrics.FLOWS_REMOVED.inc()
        self._remove([flow])


def size_of(flow: http.HTTPFlow) -> int:
    """Return the bytes of a flow's bodies and events."""
    bodies = [flow.request.raw_content, flow.response.raw_content if flow.response is not None else None]
    size = sum(len(body) for body in bodies if body is not None)
    if flow.websocket is not None:
        size += sum(len(message.content) for message in flow.websocket.messages)
    return size
