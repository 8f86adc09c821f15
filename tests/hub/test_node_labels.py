"""The labels of other nodes as the manager writes them: the hub reads them and no Node but its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kube.json_type import Json
from kube.requests.node_labels import BUCKETS, bucket_of
from tests.cloud.fixtures import HUB_NODES
from tests.cloud.real import RealCloud
from tests.hub.support.objects import endpoint_slice, nodes_of, services, slices
from tests.hub.support.process import Hub
from tests.hub.support.site import hub_before
from tests.hub.support.streams import watching

LABELS = "/apis/edgehub.io/v1/nodelabels"
NODES = "/api/v1/nodes"
KIND = Path(__file__).parents[2] / "controllers" / "manifests" / "nodelabels.yaml"
NODE, NEAR, FAR = "labels-own", "labels-near", "labels-far"


def written(name: str, zones: dict[str, str]) -> Json:
    groups = [{"labels": {"zone": zones[node]}, "nodes": [node]} for node in zones if bucket_of(node) == name]
    return {"apiVersion": "edgehub.io/v1", "kind": "NodeLabels", "metadata": {"name": name}, "groups": groups}


@pytest.fixture
def hub(real_cloud: RealCloud, tmp_path: Path) -> Iterator[Hub]:
    """A hub before a cloud with the kind, and with all that the manager writes."""
    for manifest in (HUB_NODES, KIND):
        real_cloud.apply(manifest)
    admin, zones = real_cloud.admin, {NEAR: "a", FAR: "b"}
    for number in range(BUCKETS):
        admin.post(LABELS, written(f"{number:02}", zones))
    # What the Nodes themselves say is something else, so that a test sees which of both is read.
    for name, zone in ((NODE, "a"), (NEAR, "b"), (FAR, "a")):
        admin.post(NODES, {"metadata": {"name": name, "labels": {"zone": zone}}})
    with hub_before(real_cloud, tmp_path, NODE) as made:
        yield made
    for name in (NODE, NEAR, FAR):
        admin.delete(f"{NODES}/{name}")
    real_cloud.kubectl("delete", "-f", str(KIND))


@pytest.mark.real
async def test_a_status_of_another_node_is_no_event_for_a_hub(
    real_cloud: RealCloud, hub: Hub, namespace: str
) -> None:
    admin, spec = real_cloud.admin, {"ports": [{"name": "http", "port": 80}]}
    metadata = {"name": "web", "annotations": {"topologyKeys": '["zone"]'}}
    await asyncio.to_thread(admin.post, services(namespace), {"metadata": metadata, "spec": spec})
    await asyncio.to_thread(admin.post, slices(namespace), endpoint_slice("web-1", "web", NODE, NEAR, FAR))
    async with watching(hub.url, slices(namespace), component="kube-proxy") as watch:
        await watch.until(lambda seen: bool(seen) and nodes_of(seen[-1].object) == [NODE, NEAR])
        paths = [(each["path"], each["fieldSelector"]) for each in await asyncio.to_thread(hub.sources)]
        assert (LABELS, "") in paths
        assert [each for each in paths if each[0] == NODES] == [(NODES, f"metadata.name={NODE}")]
        moved = written(bucket_of(FAR), {NEAR: "a", FAR: "a"})
        await asyncio.to_thread(admin.patch, f"{LABELS}/{bucket_of(FAR)}", {"groups": moved["groups"]})
        await watch.until(lambda seen: nodes_of(seen[-1].object) == [NODE, NEAR, FAR])
