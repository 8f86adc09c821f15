"""The hub's own requests in mitmproxy's flow list: their start and end, without secrets."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from mitmproxy import http
from mitmproxy.addons.dumper import Dumper
from mitmproxy.addons.save import Save
from mitmproxy.io import FlowReader
from mitmproxy.proxy.layers.websocket import WebsocketEndHook
from mitmproxy.test import taddons, tflow

from addons.link.request_records import RequestRecord, RequestRecords
from addons.requests.caller import CredentialSource
from addons.ui.flows.annotations import OWN
from addons.ui.flows.interface_flows import OwnRequestsShown, report_watch_ends, save_when_over

SERVER = "https://a:6443"


def shown() -> tuple[RequestRecords, list[http.HTTPFlow], list[http.HTTPFlow]]:
    """Return records, with the lists of added and of updated flows."""
    records = RequestRecords()
    added: list[http.HTTPFlow] = []
    updated: list[http.HTTPFlow] = []
    records.listeners.append(OwnRequestsShown(added.append, updated.append).record_changed)
    return records, added, updated


def test_a_request_is_a_flow_from_its_start() -> None:
    records, added, updated = shown()
    record = RequestRecord("GET", "/api/v1/pods?token=t", SERVER, CredentialSource.HUB)
    records.begin(record)
    (flow,) = added
    assert (flow.request.method, flow.request.url) == ("GET", f"{SERVER}/api/v1/pods?token=hidden")
    assert (flow.marked, flow.comment) == (OWN, "edgehub ▸ own request ▸ identity hub")
    assert (flow.response, updated) == (None, [])
    record.status, record.received = 200, 7
    records.end(record)
    assert updated == [flow]
    assert flow.response is not None
    assert (flow.response.status_code, b"7 bytes" in (flow.response.content or b"")) == (200, True)


@pytest.mark.parametrize(("failure", "message"), [("refused", "refused"), ("", "left before an answer came")])
def test_a_failed_request_shows_the_failure(failure: str, message: str) -> None:
    records, _, updated = shown()
    record = RequestRecord("GET", "/livez", SERVER, CredentialSource.HUB, failure=failure)
    records.begin(record)
    records.end(record)
    assert updated[0].error is not None
    assert updated[0].error.msg == message


def test_a_flow_is_saved_in_its_final_state(tmp_path: Path) -> None:
    save, file = Save(), tmp_path / "flows"
    with taddons.context(save) as context:
        write = save_when_over(context.master)
        context.configure(save, save_stream_file=str(file))
        flow = tflow.tflow(resp=True)
        assert flow.response is not None
        for hook in (save.request, save.response, save.error):
            hook(flow)
        flow.response.content = b"as it is shown"
        write(flow)
        context.configure(save, save_stream_file=None)
    with file.open("rb") as opened:
        (read,) = FlowReader(opened).stream()
    assert b"as it is shown" in str(read.get_state()).encode()


@pytest.mark.parametrize(("by_client", "who"), [(True, "its client"), (False, "the hub")])
def test_mitmdump_prints_the_end_of_a_watch(by_client: bool, who: str) -> None:
    printed = io.StringIO()
    with taddons.context(dumper := Dumper(printed)) as context:
        report_watch_ends(context.master)
        flow = tflow.twebsocketflow()
        flow.comment = "kube-proxy ▸ view"
        assert flow.websocket is not None
        flow.websocket.closed_by_client = by_client
        context.master.addons.trigger(WebsocketEndHook(flow))
        context.configure(dumper, dumper_filter="~m POST")
        context.master.addons.trigger(WebsocketEndHook(flow))
    assert printed.getvalue() == f"kube-proxy: the watch of {flow.request.path} has ended, by {who}\n"


def test_nothing_is_done_if_mitmproxy_saves_no_flows() -> None:
    with taddons.context() as context:
        save_when_over(context.master)(tflow.tflow())
