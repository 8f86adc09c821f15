"""The hub's own requests among the flows of an interface, made from what the link records of them."""

from __future__ import annotations

from collections.abc import Callable

from mitmproxy import connection, http
from mitmproxy.flow import Error

from addons.link.request_records import RequestRecord
from addons.requests.caller import masked
from addons.telemetry.labels import HUB
from addons.ui.flows.annotations import ARROW, OWN

NOTE = b"not held: the hub reads this answer itself, %d bytes of it so far\n"


class OwnRequestsShown:
    """Makes a flow of each request: without headers, which have the credentials, and without bodies."""

    def __init__(
        self, add: Callable[[http.HTTPFlow], object], update: Callable[[http.HTTPFlow], object]
    ) -> None:
        """`add` shows a new flow, `update` one that has changed, and has ended where it has an answer."""
        self._add = add
        self._update = update
        self._open: dict[RequestRecord, http.HTTPFlow] = {}

    def told(self, record: RequestRecord) -> None:
        """A request has begun, or ended."""
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
    flow.comment = ARROW.join((HUB, "own request", f"identity {record.lending}"))
    return flow
