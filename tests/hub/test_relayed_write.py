"""A running hub relays a write by the steps on the architecture page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import aiohttp

from tests.addons.support.samples import node
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.process import Hub, started
from tests.repository.support.tree import ROOT


async def test_a_relayed_write_takes_the_documented_steps(cloud: ScriptableCloud, tmp_path: Path) -> None:
    def functions(step: str) -> list[str]:
        """Return the functions that a step names, without classes."""
        return [
            name for name in re.findall(r"`(addons(?:\.\w+)+)`", step) if name.rpartition(".")[2].islower()
        ]

    def steps(text: str) -> list[str]:
        """Return the numbered steps of a text."""
        return re.findall(r"^\d\. (.*?)(?=^\d\. |^$|\Z)", text, re.MULTILINE | re.DOTALL)

    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("## One relayed write")[2].partition("\n## ")[0]
    there, back = (steps(part) for part in section.split("The answer:"))
    # Steps that are alternatives.
    most = 8
    assert 0 < len(there) <= most
    assert 0 < len(back) <= most
    named = [name for step in (*there, *back) for name in functions(step)]
    cloud.store.create(node("n1"))
    calls = tmp_path / "calls"
    kubeconfig = write_kubeconfig(tmp_path / "hub.kubeconfig", cloud.url)
    program = ("tests.hub.support.traced", str(calls), ",".join(named))
    status = "/api/v1/nodes/n1/status"
    kubelet = {"User-Agent": "kubelet/v1.36.3", "Content-Type": "application/strategic-merge-patch+json"}
    async with started(Hub(tmp_path, cloud.url, kubeconfig=kubeconfig, node="n1", program=program)) as hub:
        calls.write_text("")
        body = json.dumps({"status": {"phase": "Running"}})
        async with (
            aiohttp.ClientSession() as http,
            http.patch(hub.url + status, data=body, headers=kubelet) as got,
        ):
            assert got.status == 200, await got.text()
        called = calls.read_text().split()
    assert list(dict.fromkeys(called)) == named
