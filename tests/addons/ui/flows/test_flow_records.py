"""The record of a flow, which content views read, goes with the flow."""

from __future__ import annotations

from mitmproxy.test import tflow

from addons.ui.flows.flow_records import FlowRecord, record_of, remember
from addons.ui.masking import USUALLY, Visible
from tests.addons.support.samples import request_context


def test_a_flow_has_its_record_and_a_copy_has_none() -> None:
    flow = tflow.tflow()
    made = FlowRecord(request_context(), None, visible=Visible(secrets=True))
    remember(flow, made)
    assert record_of(flow) is made
    for unknown in (flow.copy(), None):
        assert record_of(unknown) == FlowRecord(None, None, visible=USUALLY)
