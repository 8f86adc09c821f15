"""Counts for people what each component asks for and gets, piece by piece as answers pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mitmproxy import http

from addons.filters.filter import READS
from addons.link.servers import ServerHost
from addons.requests.request_context import RequestContext, context_of
from addons.telemetry.component_traffic import ComponentCounts, ComponentTraffic
from addons.telemetry.labels import group_resource_label
from kube.requests.request_info import RequestInfo

type Stream = Callable[[bytes], Iterable[bytes] | bytes]


class Traffic:
    """Counts in `counts`."""

    name = "edgehub-traffic"

    def __init__(self) -> None:
        self.counts = ComponentTraffic()
        self._open: dict[str, tuple[ComponentCounts, bool]] = {}
        """The counts of each flow that is being answered, by the flow's id, and whether it is a watch."""

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        if flow.response is None:
            return
        counts = self._begin(flow, flow.response.status_code)
        stream = flow.response.stream
        if stream:
            counted = _counted(counts, is_fetched=isinstance(flow.request.host, ServerHost))
            flow.response.stream = _both(stream, counted) if callable(stream) else counted
        context = context_of(flow)
        if context is not None and context.stream_too_large is not None:
            too_large, counted = context.stream_too_large, _counted(counts, is_fetched=True)
            context.stream_too_large = lambda chunk: too_large(counted(chunk))

    def response(self, flow: http.HTTPFlow) -> None:
        assert flow.response is not None
        counts = self._begin(flow, flow.response.status_code)
        if not flow.response.stream:
            size = len(flow.response.raw_content or b"")
            counts.totals.sent += size
            counts.totals.fetched += size if isinstance(flow.request.host, ServerHost) else 0
        self._end(flow)

    def error(self, flow: http.HTTPFlow) -> None:
        # Where the client left, nobody was told that anything went wrong.
        left = flow.error is not None and "disconnect" in flow.error.msg
        self._begin(flow, 0 if left else 502)
        self._end(flow)

    def _begin(self, flow: http.HTTPFlow, code: int) -> ComponentCounts:
        if flow.id not in self._open:
            context = context_of(flow)
            is_watch = context is not None and context.info.verb == "watch" and code == 200
            read = _read(context.info) if context is not None else ""
            self._open[flow.id] = (
                self.counts.began(_component(context), read, code, is_watch=is_watch),
                is_watch,
            )
        return self._open[flow.id][0]

    def _end(self, flow: http.HTTPFlow) -> None:
        counts, is_watch = self._open.pop(flow.id)
        counts.watches -= is_watch


def _component(context: RequestContext | None) -> str:
    if context is None:
        return ""
    return context.component


def _read(info: RequestInfo) -> str:
    """The resource of a read, as metrics name it; "" for all other requests."""
    if info.type is None or info.subresource or info.verb not in READS:
        return ""
    return group_resource_label(info.type.group, info.type.resource)


def _counted(counts: ComponentCounts, *, is_fetched: bool) -> Callable[[bytes], bytes]:
    totals = counts.totals

    def count(chunk: bytes) -> bytes:
        totals.sent += len(chunk)
        if is_fetched:
            totals.fetched += len(chunk)
        return chunk

    return count


def _both(stream: Stream, counted: Callable[[bytes], bytes]) -> Stream:
    return lambda chunk: stream(counted(chunk))
