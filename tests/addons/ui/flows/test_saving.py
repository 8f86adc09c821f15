"""mitmproxy's file gets a flow when the flow is over, as people see it."""

from __future__ import annotations

from pathlib import Path

from mitmproxy.addons.save import Save
from mitmproxy.io import FlowReader
from mitmproxy.test import taddons, tflow

from addons.ui.flows.saving import save_when_over


def test_a_flow_is_written_as_it_is_when_it_is_over(tmp_path: Path) -> None:
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


def test_where_mitmproxy_saves_nothing_there_is_nothing_to_do() -> None:
    with taddons.context() as context:
        save_when_over(context.master)(tflow.tflow())
