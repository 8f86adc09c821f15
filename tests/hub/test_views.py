"""Filtered views on the real control plane: who sees what, in both encodings, and how a rule's edit reaches a watch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kube.json_type import Json
from kube.wire.api_objects import ApiObject
from kube.wire.encoding import Encoding
from tests.cloud.real import RealCloud
from tests.cloud.rest import RestError
from tests.hub.conftest import CONFIG
from tests.hub.support.process import Hub
from tests.hub.support.settled import caught_up
from tests.hub.support.streams import Seen, listed, watching

BOTH = pytest.mark.parametrize("encoding", [Encoding.JSON, Encoding.PROTOBUF], ids=["json", "protobuf"])


def slices(namespace: str, name: str = "") -> str:
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    return f"{path}/{name}" if name else path


def services(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/services"


def service(name: str, **annotations: str) -> Json:
    return {
        "metadata": {
            "name": name,
            "annotations": {key.replace("__", "/"): text for key, text in annotations.items()},
        },
        "spec": {"ports": [{"name": "http", "port": 80}], "selector": {"app": name}},
    }


def endpoint_slice(name: str, of: str, *nodes: str) -> Json:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": of}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [
            {"addresses": [f"10.1.0.{number}"], "nodeName": node} for number, node in enumerate(nodes, 1)
        ],
    }


def nodes_of(obj: ApiObject) -> list[str]:
    return [endpoint.text("nodeName") for endpoint in obj.fields.children("endpoints")]


def showing(name: str, *nodes: str) -> Callable[[list[Seen]], bool]:
    """Whether the last event of a slice tells of these nodes."""

    def shows(seen: list[Seen]) -> bool:
        about = [each for each in seen if each.name == name]
        return bool(about) and nodes_of(about[-1].object) == list(nodes)

    return shows


@pytest.fixture
def web(real_cloud: RealCloud, hub: Hub, namespace: str) -> str:
    """A Service for this node only, with endpoints here and elsewhere; the namespace it is in."""
    annotated = service("web", openyurt__io="")
    annotated["metadata"]["annotations"] = {"openyurt.io/topologyKeys": "kubernetes.io/hostname"}
    real_cloud.admin.post(services(namespace), annotated)
    real_cloud.admin.post(slices(namespace), endpoint_slice("web-1", "web", hub.node, "elsewhere"))
    caught_up(real_cloud, hub)
    return namespace


def set_rules(cloud: RealCloud, **data: str) -> None:
    """Write the rules ConfigMap; one without data adds nothing to the rules that are built in."""
    rules = {"metadata": {"name": "yurt-hub-cfg"}, "data": data}
    try:
        cloud.admin.put(f"{CONFIG}/yurt-hub-cfg", rules)
    except RestError as error:
        assert error.answer.status == 404  # noqa: PT017 - any other answer is a fault of the test's cloud
        cloud.admin.post(CONFIG, rules)


@BOTH
async def test_a_watch_list_and_its_events_are_filtered(
    hub: Hub, real_cloud: RealCloud, web: str, encoding: Encoding
) -> None:
    async with watching(
        *(hub.url, slices(web)),
        component="kube-proxy",
        encoding=encoding,
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    ) as events:
        await events.until(lambda seen: any(each.type == "BOOKMARK" for each in seen))
        assert [(each.type, each.name) for each in events.seen] == [("ADDED", "web-1"), ("BOOKMARK", "")]
        assert events.seen[1].object.annotations == {"k8s.io/initial-events-end": "true"}
        assert nodes_of(events.seen[0].object) == [hub.node]
        name = f"web-2-{encoding.name.lower()}"
        made = await asyncio.to_thread(
            real_cloud.admin.post, slices(web), endpoint_slice(name, "web", "elsewhere")
        )
        emptied = await events.first("ADDED", name)
        assert nodes_of(emptied.object) == [], "an emptied slice is still sent"
        assert emptied.object.version == int(made["metadata"]["resourceVersion"])
        await asyncio.to_thread(real_cloud.admin.delete, slices(web, name))
        await events.first("DELETED", name)


async def test_a_consistent_list_sees_what_was_written_just_before(
    hub: Hub, real_cloud: RealCloud, web: str
) -> None:
    for number in range(20):
        name = f"fresh-{number}"
        await asyncio.to_thread(real_cloud.admin.post, slices(web), endpoint_slice(name, "web", "elsewhere"))
        assert name in await listed(hub.url, slices(web), component="kube-proxy")
    await asyncio.to_thread(real_cloud.admin.delete, slices(web, "fresh-0"))
    assert "fresh-0" not in await listed(hub.url, slices(web), component="kube-proxy")


async def test_an_edit_of_the_rules_reaches_open_watches_at_once(
    hub: Hub, real_cloud: RealCloud, web: str
) -> None:
    await asyncio.to_thread(set_rules, real_cloud)
    async with (
        watching(
            hub.url, slices(web), component="ingress", resourceVersion="0", allowWatchBookmarks="true"
        ) as relayed,
        watching(
            hub.url, slices(web), component="flanneld", resourceVersion="0", allowWatchBookmarks="true"
        ) as viewed,
    ):
        await relayed.first("ADDED", "web-1")
        # The hub may learn only now that the rules of the test before are gone.
        await viewed.until(showing("web-1", hub.node, "elsewhere"))
        rule = "flanneld/endpointslices#list;watch,ingress/endpointslices"
        await asyncio.to_thread(set_rules, real_cloud, filter_servicetopology=rule)
        await viewed.until(showing("web-1", hub.node))
        # This one was never the hub's: it is ended, so that its client comes back to a filtered one.
        await relayed.until(lambda _: relayed.ended)
        await asyncio.to_thread(set_rules, real_cloud)
        await viewed.until(showing("web-1", hub.node, "elsewhere"))
        later = [each.type for each in viewed.seen if each.type != "BOOKMARK"][1:]
        assert set(later) == {"MODIFIED"}
