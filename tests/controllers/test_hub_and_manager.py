"""A hub filters by the pools that the manager keeps: from a node's label to what kube-proxy on another node sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cloud.rest import RestClient
from tests.controllers.support.scene import Scene
from tests.hub.support.process import Hub

pytestmark = [pytest.mark.real]


@pytest.mark.usefixtures("manager")
def test_a_hub_follows_the_pools_of_the_manager(scene: Scene, tmp_path: Path) -> None:
    pool = scene.pool(interConnectivity=True)
    own, other = scene.node(pool), scene.node()
    service = scene.service("openyurt.io/nodepool")
    name = scene.slice(service, own, other)
    identity = scene.cloud.node_kubeconfig(own)
    with (
        Hub(tmp_path, scene.cloud.url, node=own, kubeconfig=identity) as hub,
        RestClient(hub.url, user_agent="kube-proxy/v1.36.3 (linux/amd64)") as kube_proxy,
    ):

        def seen() -> list[str]:
            # Version 0 is answered from the hub's own view, as a reflector's list is.
            slices = kube_proxy.get(scene.slices, resourceVersion="0")["items"]
            [mine] = [each for each in slices if each["metadata"]["name"] == name]
            return [each["nodeName"] for each in mine.get("endpoints") or []]

        scene.until(lambda: seen() == [own])
        scene.relabel(other, pool)
        scene.until(lambda: seen() == [own, other])
        scene.relabel(other, None)
        scene.until(lambda: seen() == [own])
        assert seen() == [own]
