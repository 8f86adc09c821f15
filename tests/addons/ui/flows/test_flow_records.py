"""What the cloud sent beside what a component got, found from the request alone; the record of a flow."""

from __future__ import annotations

from mitmproxy.test import tflow

from addons.ui.flows.flow_records import FlowRecord, record_of, remember
from addons.ui.masking import USUALLY, Visible
from tests.addons.support.filtered_view import filtered
from tests.addons.support.hub_parts import HubParts


async def test_what_is_not_from_a_view_has_no_source(parts: HubParts) -> None:
    found = filtered(parts, parts.context("/version"))
    assert (found.filters, found.source(), list(found.items())) == ((), None, [])
    never_read = filtered(parts, parts.context("/api/v1/services?resourceVersion=0", "kube-proxy"))
    assert never_read.source() is None


def test_a_flow_has_its_record_and_a_copy_has_none() -> None:
    flow = tflow.tflow()
    made = FlowRecord(None, Visible(secrets=True))
    remember(flow, made)
    assert record_of(flow) is made
    for unknown in (flow.copy(), None):
        assert record_of(unknown) == FlowRecord(None, USUALLY)
