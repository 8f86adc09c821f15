"""A failure in any part of the hub gives a 5xx Status or no response: nothing unfiltered, no other identity. The test
breaks each hook in turn in a running hub in front of a cloud that records callers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest

from tests.addons.support.samples import config_map, endpoint_slice, service
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User
from tests.hub.support.broken import NAMES
from tests.hub.support.process import Hub, started

EVERY_REQUEST = {
    "edgehub-resolve.requestheaders",
    "edgehub-identity.requestheaders",
    "edgehub-router.requestheaders",
    "edgehub-router.responseheaders",
    "edgehub-router.response",
    "edgehub-egress.requestheaders",
}
"""Hooks without which a relayed request cannot succeed. `response` runs too late for a streamed one."""


@pytest.fixture
def cloud_objects(cloud: ScriptableCloud) -> ScriptableCloud:
    """A Service for one node, with endpoints on two, and a rule that filters single objects too."""
    for document in (
        config_map({"filter_servicetopology": "kube-proxy/endpointslices#get"}),
        service("web", annotations={"openyurt.io/topologyKeys": "kubernetes.io/hostname"}),
        endpoint_slice("web-1", ("node-1", "elsewhere")),
    ):
        cloud.store.create(document)
    cloud.access.tokens["hub-token"] = User("hub")
    cloud.access.tokens["pod-token"] = User("pod")
    cloud.access.anonymous = False
    return cloud


def test_every_hook_of_the_chain_is_guarded() -> None:
    assert set(NAMES) >= EVERY_REQUEST


async def test_a_broken_hook_fails_closed(cloud_objects: ScriptableCloud, tmp_path: Path) -> None:
    async def answer(url: str, headers: dict[str, str]) -> tuple[int, bytes]:
        """Return status and body; 0 if the connection was closed without a response."""
        try:
            async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as got:
                return got.status, await got.read()
        except aiohttp.ClientError:
            return 0, b""

    slices = "/apis/discovery.k8s.io/v1/endpointslices?resourceVersion=0"
    one_slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/web-1"

    async def check(hub: Hub, cloud: ScriptableCloud, hook: str) -> None:
        addon, _, name = hook.partition(".")
        before = await asyncio.to_thread(hub.metric, "edgehub_hook_errors_total", addon=addon, hook=name)
        answers = [
            await answer(hub.url + path, {"User-Agent": "kube-proxy/v1"}) for path in (slices, one_slice)
        ]
        cloud.requests.clear()
        own = await answer(
            hub.url + "/api/v1/namespaces/default/configmaps", {"Authorization": "Bearer pod-token"}
        )
        came = {each.user for each in cloud.requests if "/namespaces/default/configmaps" in each.path}
        counted = await asyncio.to_thread(hub.metric, "edgehub_hook_errors_total", addon=addon, hook=name)
        for code, body in (*answers, own):
            assert b"elsewhere" not in body, f"{hook}: an unfiltered object got through"
            assert code == 0 or code == 200 or code >= 500, hook
            if code >= 500:
                assert json.loads(body)["kind"] == "Status", hook
        assert came <= {"pod"}, f"{hook}: a caller with a token of its own was given another identity"
        if not hook:
            assert [code for code, _ in (*answers, own)] == [200, 200, 200]
        if hook in EVERY_REQUEST - {"edgehub-router.response"}:
            assert own[0] >= 500, hook
        if hook in EVERY_REQUEST:
            assert counted > before, hook

    cloud, broken = cloud_objects, tmp_path / "broken"
    kubeconfig = write_kubeconfig(tmp_path / "hub.kubeconfig", cloud.url, token="hub-token")
    broken.touch()
    program = ("tests.hub.support.broken", str(broken))
    async with started(
        Hub(tmp_path, cloud.url, kubeconfig=kubeconfig, flags=("--wait", "1"), program=program)
    ) as hub:
        for each in ("", *NAMES, ""):
            broken.write_text(each)
            await check(hub, cloud, each)
