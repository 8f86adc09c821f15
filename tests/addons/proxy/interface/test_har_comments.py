"""A HAR file of an interface has the comment of each flow."""

from __future__ import annotations

import json
from pathlib import Path

from mitmproxy.addons.savehar import SaveHar
from mitmproxy.test import taddons, tflow

from addons.proxy.interface.har_comments import comment_hars


def comment_in_har(file: Path, *, is_hub: bool) -> str:
    flow = tflow.tflow(resp=True)
    flow.comment = "kubelet ▸ relay"
    with taddons.context(SaveHar()) as context:
        if is_hub:
            comment_hars(context.master)
        context.master.commands.call("save.har", [flow], str(file))
    return str(json.loads(file.read_text())["log"]["entries"][0].get("comment", ""))


def test_it_is_there_where_mitmproxys_own_leaves_it_out(tmp_path: Path) -> None:
    assert comment_in_har(tmp_path / "own.har", is_hub=False) == "", "mitmproxy has it now: the hub's can go"
    assert comment_in_har(tmp_path / "hub.har", is_hub=True) == "kubelet ▸ relay"


def test_a_master_without_hars_stays_so() -> None:
    with taddons.context() as context:
        comment_hars(context.master)
        assert context.master.addons.get("savehar") is None
