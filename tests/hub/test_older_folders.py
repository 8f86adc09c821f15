"""A hub that starts offline from an older state folder: of an earlier format, or after a refusal. `state_folders/` has
the database of a hub for each format, after an outage: two Services with topology, their slices on three nodes in two
zones, a NodePool, a ConfigMap, a pod, and in the journal that pod's status and an event. The node is node-1."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

import aiohttp
import pytest

from addons.startup.folder_owner import HUB_ENTRIES
from kube.json_type import Json
from kube.requests.node_labels import NODE_LABELS
from kube.requests.request_info import RequestInfo
from kube.wire.encoding import Encoding
from tests.cloud.ports import free_port
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import ANONYMOUS
from tests.hub.support.objects import endpoint_slice, nodes_of, service
from tests.hub.support.process import Hub, started
from tests.hub.support.streams import listed

ALL_SLICES = "/apis/discovery.k8s.io/v1/endpointslices"


async def shown(hub: Hub, encoding: Encoding) -> dict[str, list[str]]:
    """Return the nodes of each slice, as kube-proxy gets them."""
    got = await listed(hub.url, ALL_SLICES, component="kube-proxy", encoding=encoding, resourceVersion="0")
    return {name: nodes_of(each) for name, each in got.items()}


async def status_of(hub: Hub, path: str) -> int:
    headers = {"User-Agent": "kubelet/v1", "Accept": "application/json", "Accept-Encoding": "identity"}
    async with aiohttp.ClientSession() as session, session.get(hub.url + path, headers=headers) as answer:
        return answer.status


@pytest.mark.parametrize(
    "folder",
    sorted((Path(__file__).parent / "state_folders").glob("*.db.gz")),
    ids=lambda folder: folder.name,
)
async def test_a_hub_with_a_state_folder_of_an_earlier_format_serves_offline(
    folder: Path, tmp_path: Path
) -> None:
    """Filters need objects that the earlier hub did not read, and there is no cloud to read them from."""

    def put(folder: Path, state: Path) -> None:
        """Fill a state folder with the files of a hub with another format."""
        database = state / "cache" / "cache.db"
        database.parent.mkdir(parents=True)
        state.chmod(0o700)
        database.write_bytes(gzip.decompress(folder.read_bytes()))

    hub = Hub(tmp_path, f"http://127.0.0.1:{free_port()}")
    await asyncio.to_thread(put, folder, hub.state)
    reads = (
        "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1&resourceVersion=0",
        "/api/v1/nodes/node-1",
        "/api/v1/namespaces/default/configmaps/mounted",
        "/version",
    )
    async with started(hub):
        for encoding in Encoding:
            # No controller has written a status of the pool, so it restricts nothing.
            everywhere = ["node-1", "node-2", "node-3"]
            assert await shown(hub, encoding) == {"web-1": ["node-1", "node-2"], "pool-1": everywhere}
        assert [await status_of(hub, path) for path in reads] == [200] * len(reads)
        waiting = await asyncio.to_thread(hub.metric, "edgehub_journal_entries")
        log = await asyncio.to_thread((tmp_path / "hub.log").read_text)
    lost = [line for line in log.splitlines() if "dropping the journal's entry" in line]
    assert waiting + len(lost) == 2, "what is lost is said in one line"


async def test_the_refusal_of_a_filter_input_is_stored_over_a_restart(
    cloud: ScriptableCloud, tmp_path: Path
) -> None:
    """After an upgrade without applying the new manifests, the node may not read NodeLabels."""

    def may(info: RequestInfo) -> bool:
        return info.type is None or info.type.resource != NODE_LABELS.resource

    cloud.access.allowed[ANONYMOUS.name] = may
    for name, zone in (("node-1", "a"), ("node-2", "a"), ("node-3", "b")):
        cloud.store.create(_named("v1", "Node", name, labels={"zone": zone}))
    web: Json = service("web", {"topologyKeys": '["zone"]'})
    made = {"apiVersion": "v1", "kind": "Service", **web}
    made["metadata"]["namespace"] = "default"
    cloud.store.create(made)
    slice_: Json = endpoint_slice("web-1", "web", "node-1", "node-2", "node-3")
    slice_["metadata"]["namespace"] = "default"
    cloud.store.create({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", **slice_})
    hub = Hub(tmp_path, cloud.url)
    expected = {"web-1": ["node-1", "node-2"]}
    async with started(hub):
        assert await shown(hub, Encoding.PROTOBUF) == expected
        await asyncio.to_thread(hub.wait_until_stored, '"refused":403', 1)
        await asyncio.to_thread(hub.stop)
        await cloud.stop()
        for _ in range(2):
            await asyncio.to_thread(hub.start)
            assert await shown(hub, Encoding.PROTOBUF) == expected
            await asyncio.to_thread(hub.kill)
        await cloud.start()
        cloud.access.allowed.clear()
        await asyncio.to_thread(hub.start)
        assert await shown(hub, Encoding.PROTOBUF) == expected


def _named(api_version: str, kind: str, name: str, **metadata: object) -> Json:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **metadata}}


async def test_a_state_folder_of_another_node_is_moved_aside_and_not_served(
    cloud: ScriptableCloud, tmp_path: Path
) -> None:
    """A disk image of node-2 is started as node-3 without a cloud: with the Secret, the Node and the pending status of
    node-2."""
    made = {"type": "Opaque", "data": {"key": "c2VjcmV0"}}
    cloud.store.create({**_named("v1", "Secret", "of-n2", namespace="default"), **made})
    cloud.store.create(_named("v1", "Node", "node-2"))
    secret = "/api/v1/namespaces/default/secrets/of-n2"
    former, copied = Hub(tmp_path, cloud.url, node="node-2"), Hub(tmp_path, cloud.url, node="node-3")
    async with started(former):
        assert [await status_of(former, path) for path in (secret, "/api/v1/nodes/node-2")] == [200, 200]
        await asyncio.to_thread(former.wait_until_stored, "c2VjcmV0", 1)
    await cloud.stop()
    async with started(former):
        assert await status_of(former, secret) == 200
    async with started(copied, ready=False):
        assert [await status_of(copied, path) for path in (secret, "/api/v1/nodes/node-2")] == [503, 503]
        await copied.logged(r"the state folder \S+ belongs to node node-2: moved to \S+/set-aside")
        known = {*HUB_ENTRIES, "lock", "owner.json", "set-aside"}
        assert {each.name for each in await asyncio.to_thread(lambda: [*copied.state.iterdir()])} <= known
