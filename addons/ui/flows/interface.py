"""The initial state of mitmproxy's interface (address, columns, filter), and the flows that it keeps: the oldest go
first."""

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
"""The columns of a flow in the browser. The comment, which takes all room, ends with the path."""


def begin_interface(master: Master) -> None:
    """Show components or full comments in the list of flows, and print the page's address at the terminal of mitmweb.

    The log, which others may read, never has the token.
    """
    if master.addons.get("consoleaddon") is not None:
        from addons.proxy.interface.console_list import list_components  # noqa: PLC0415 - imports the console

        list_components(master, component_of)
    if address := web_address(master):
        from addons.proxy.interface.web_style import show_full_comments  # noqa: PLC0415 - imports mitmweb

        show_full_comments(master)
        print(f"edgehub: open {address}", flush=True)


def choose_first_view() -> None:
    """Set options that the person has not set."""
    is_web = ctx.master.addons.get("webauth") is not None
    # The browser has its filter in the address, where a person sees it and takes it away.
    defaults = {"web_columns": WEB_COLUMNS} if is_web else {"view_filter": DEFAULT_FILTER}
    for name, value in defaults.items():
        if name in ctx.options and getattr(ctx.options, name) == ctx.options.default(name):
            ctx.options.update(**{name: value})


def web_address(master: Master) -> str:
    """The URL with its token and with the hub's filter of flows; "" where there is no web interface.

    A password that the operator has set is not in it. The filter is in the fragment: mitmproxy's page shows it in its
    search field, where a person takes it away.
    """
    auth = master.addons.get("webauth")
    if auth is None:
        return ""
    address: str = auth.web_url
    return f"{address}#/flows?s={quote(DEFAULT_FILTER, safe='')}"


MAX_FLOWS = 2_000
"""Ended flows of components; a flow takes some 10 KB beside its body."""
MAX_OWN = 200
"""Ended flows of the hub itself: probes, lists and reviews."""
MAX_RETAINED_FLOWS = 32 * 1024 * 1024
"""Bytes of the bodies and events of all ended flows."""


class RetainedFlows:
    """Ended flows, in the order in which they ended. To remove a running flow would end its request."""

    def __init__(self, remove: Callable[[Sequence[http.HTTPFlow]], object]) -> None:
        self._remove = remove
        self._flows: OrderedDict[str, tuple[http.HTTPFlow, int]] = OrderedDict()
        self._own: OrderedDict[str, tuple[http.HTTPFlow, int]] = OrderedDict()
        self._bytes = 0

    def add(self, flow: http.HTTPFlow, *, is_own: bool) -> None:
        """Note an ended flow, and remove the oldest where there are too many."""
        self.forget(flow)
        size = size_of(flow)
        (self._own if is_own else self._flows)[flow.id] = (flow, size)
        self._bytes += size
        while len(self._own) > MAX_OWN:
            self._pop(self._own)
        while len(self._flows) > MAX_FLOWS or (self._bytes > MAX_RETAINED_FLOWS and len(self._flows) > 1):
            self._pop(self._flows)

    def forget(self, flow: http.HTTPFlow) -> None:
        """Forget a flow that runs again, or that a person removed."""
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
            return  # a replay goes on
        metrics.FLOWS_REMOVED.inc()
        self._remove([flow])


def size_of(flow: http.HTTPFlow) -> int:
    """Bytes of a flow's bodies and events."""
    bodies = [flow.request.raw_content, flow.response.raw_content if flow.response is not None else None]
    size = sum(len(body) for body in bodies if body is not None)
    if flow.websocket is not None:
        size += sum(len(message.content) for message in flow.websocket.messages)
    return size
