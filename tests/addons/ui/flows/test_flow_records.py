"""What the cloud sent beside what a component got, found from the request alone; the record of a flow."""

from __future__ import annotations

from mitmproxy.test import tflow

from addons.filters.verdict import Outcome
from addons.ui.flows.flow_records import FlowRecord, record_of, remember
from addons.ui.masking import USUALLY, Visible
from tests.addons.support.filtered_view import fill, filtered, opened, services
from tests.addons.support.hub_parts import HubParts
from tests.cloud.scriptable import ScriptableCloud


async def test_an_object_that_was_dropped_with_the_reason(parts: HubParts, cloud: ScriptableCloud) -> None:
    fill(cloud)
    context, body = await services(parts)
    assert b'"lb"' not in body
    found = filtered(parts, context)
    assert found.filters[0].name == "discardcloudservice"
    judged = {item.key[1]: found.judge(item) for item in found.items()}
    assert {name: each.outcome for name, each in judged.items()} == {
        "lb": Outcome.DROPPED,
        "web": Outcome.KEPT,
    }
    assert "its type is LoadBalancer" in judged["lb"].why
    assert judged["web"].why == ""


async def test_an_object_that_was_changed_with_each_reason(parts: HubParts, cloud: ScriptableCloud) -> None:
    fill(cloud)
    context, body = await opened(parts)
    assert b"10.0.0.2" not in body
    found = filtered(parts, context)
    item = next(item for item in found.items() if item.key == ("default", "web-1"))
    assert b"10.0.0.2" in item.raw
    judged = found.judge(item)
    assert judged.outcome is Outcome.CHANGED
    assert judged.why.startswith("servicetopology: 10.0.0.2 dropped: ")
    assert "10.0.0.1" not in judged.why


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
