"""Bounds the flows that an interface keeps: it removes the oldest, those of the hub itself first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from mitmproxy import http

from addons.telemetry import metrics

MAX_FLOWS = 2_000
"""Ended flows of components; a flow takes some 10 KB beside its body."""
MAX_OWN = 200
"""Ended flows of the hub itself: probes, lists and reviews."""
MAX_KEPT_FLOWS = 32 * 1024 * 1024
"""Bytes of the bodies and events of all ended flows."""


class KeptFlows:
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
        while len(self._flows) > MAX_FLOWS or (self._bytes > MAX_KEPT_FLOWS and len(self._flows) > 1):
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
