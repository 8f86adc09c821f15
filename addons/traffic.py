"""Counts each component's requests and bytes, piece by piece as answers pass, and records each request for people."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mitmproxy import http, tls

from addons.requests.object_read import read_label
from addons.requests.request_context import context_of
from addons.telemetry.component_traffic import ComponentCounts
from addons.ui.hub_records import Records
from addons.ui.live.failed_handshakes import FailedHandshakes
from addons.ui.live.observed_request import observed

type Stream = Callable[[bytes], Iterable[bytes] | bytes]


@dataclass(slots=True)
class OpenAnswer:
    """An answer in progress."""

    counts: ComponentCounts
    is_watch: bool
    is_error: bool
    sent: int = 0

    def add(self, size: int, *, is_fetched: bool) -> None:
        """Count bytes of the body."""
        self.sent += size
        totals = self.counts.totals
        totals.sent += size
        if is_fetched:
            totals.fetched += size
        elif not self.is_error:
            totals.copied += size

    def counted(self, *, is_fetched: bool) -> Callable[[bytes], bytes]:
        """Return a stream function that counts bytes."""

        def count(chunk: bytes) -> bytes:
            self.add(len(chunk), is_fetched=is_fetched)
            return chunk

        return count


class Traffic:
    """Counts requests and bytes, and writes the records."""

    name = "edgehub-traffic"

    def __init__(self, records: Records) -> None:
        self.counts, self.observations = records.traffic, records.observations
        self._handshakes = FailedHandshakes(self.observations)
        self._open: dict[str, OpenAnswer] = {}
        """Each flow with an answer in progress, by id."""

    def tls_failed_client(self, data: tls.TlsData) -> None:
        self._handshakes.add(data)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        if flow.response is None:
            return
        answer = self._begin(flow, flow.response.status_code)
        stream = flow.response.stream
        if stream:
            counted = answer.counted(is_fetched=_is_fetched(flow))
            flow.response.stream = _both(stream, counted) if callable(stream) else counted
        context = context_of(flow)
        if context is not None and context.stream_too_large is not None:
            too_large, counted = context.stream_too_large, answer.counted(is_fetched=True)
            context.stream_too_large = lambda chunk: too_large(counted(chunk))
        if answer.is_watch:
            self.observations.add(observed(flow, context, time.time(), 0, has_ended=False))

    def response(self, flow: http.HTTPFlow) -> None:
        assert flow.response is not None
        answer = self._begin(flow, flow.response.status_code)
        if not flow.response.stream:
            size = len(flow.response.raw_content or b"")
            answer.add(size, is_fetched=_is_fetched(flow))
        self._end(flow)

    def error(self, flow: http.HTTPFlow) -> None:
        # A client that left has not seen a fault.
        left = flow.error is not None and "disconnect" in flow.error.msg
        self._begin(flow, 0 if left else 502)
        self._end(flow)

    def _begin(self, flow: http.HTTPFlow, code: int) -> OpenAnswer:
        if (answer := self._open.get(flow.id)) is None:
            context = context_of(flow)
            is_watch = context is not None and context.info.verb == "watch" and code == 200
            component, read = ("", "") if context is None else (context.component, read_label(context.info))
            is_error = code >= 400
            counts = self.counts.began(component, read, is_error=is_error, is_watch=is_watch)
            answer = self._open[flow.id] = OpenAnswer(counts, is_watch, is_error)
        return answer

    def _end(self, flow: http.HTTPFlow) -> None:
        answer = self._open.pop(flow.id)
        answer.counts.watches -= answer.is_watch
        self.observations.add(observed(flow, context_of(flow), time.time(), answer.sent))


def _is_fetched(flow: http.HTTPFlow) -> bool:
    """Whether a server of the cloud gave the answer."""
    context = context_of(flow)
    return context is not None and context.upstream is not None


def _both(stream: Stream, counted: Callable[[bytes], bytes]) -> Stream:
    return lambda chunk: stream(counted(chunk))
