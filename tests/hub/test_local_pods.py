"""While the cloud is away, endpoints of this node's pods follow kubelet, and do not flap after the outage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kube.json_type import Json
from kube.wire.api_objects import ApiObject
from kube.wire.encoding import Encoding
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.hub.support.objects import endpoint_slice, services, slices
from tests.hub.support.outage import STARTED, Outage
from tests.hub.support.process import Hub, started
from tests.hub.support.site import controlled_site
from tests.hub.support.streams import Events, Seen, watching

STRATEGIC = "application/strategic-merge-patch+json"
CONTROLLERS = ["endpointslice-controller", "endpoints-controller"]
BOTH = pytest.mark.parametrize("encoding", [Encoding.JSON, Encoding.PROTOBUF], ids=["json", "protobuf"])


@pytest.fixture
def site(tmp_path: Path, cloud_programs: dict[str, Path]) -> Iterator[tuple[RealCloud, Outage]]:
    """Run a cloud with the endpoint controllers, and a hub behind a link to it."""
    with controlled_site(tmp_path, cloud_programs, CONTROLLERS) as made:
        yield made


def path_of(namespace: str, pod: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/pods" + (f"/{pod}" if pod else "")


def new_pod(name: str, node: str) -> Json:
    spec = {
        "nodeName": node,
        "containers": [{"name": "c", "image": "i"}],
        "automountServiceAccountToken": False,
    }
    return {"metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec}


def status(address: str, *former: str, ready: bool = True) -> Json:
    """Return a status patch like kubelet's, for a pod that had other addresses before."""
    conditions = [{"type": "Ready", "status": str(ready)}, {"type": "ContainersReady", "status": str(ready)}]
    ips = [{"ip": address}, *({"$patch": "delete", "ip": each} for each in former)]
    return {"status": {"phase": "Running", "conditions": conditions, "podIP": address, "podIPs": ips}}


def web() -> Json:
    ports = [{"name": "http", "port": 80, "targetPort": 8080}]
    return {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": ports}}


def addresses(obj: ApiObject) -> dict[str, tuple[str, bool]]:
    """Return the address and readiness of each pod in a slice or Endpoints."""
    if obj.kind == "EndpointSlice":
        found = [
            (each, each.texts("addresses")[0], each.child("conditions").flag("ready") is not False)
            for each in obj.fields.children("endpoints")
        ]
    else:
        found = [
            (each, each.text("ip"), name == "addresses")
            for subset in obj.fields.children("subsets")
            for name in ("addresses", "notReadyAddresses")
            for each in subset.children(name)
        ]
    return {each.child("targetRef").text("name"): (address, ready) for each, address, ready in found}


def shown(seen: list[Seen]) -> list[dict[str, tuple[str, bool]]]:
    """Return the Service's endpoints as the watch has sent them, without repetitions."""
    states = [
        addresses(each.object) for each in seen if each.type != "BOOKMARK" and each.name.startswith("web")
    ]
    return [state for before, state in zip([None, *states], states, strict=False) if state != before]


@asynccontextmanager
async def reading(outage: Outage, namespace: str, encoding: Encoding) -> AsyncIterator[dict[str, Events]]:
    """Read pods as kubelet, slices as kube-proxy, and Endpoints as coredns."""
    own = f"spec.nodeName={outage.hub.node}"
    endpoints = f"/api/v1/namespaces/{namespace}/endpoints"
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("kubelet", "/api/v1/pods", {"fieldSelector": own}),
        ("kube-proxy", slices(namespace), {}),
        ("coredns", endpoints, {}),
    ]
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(
                watching(
                    outage.hub.url, path, component=name, encoding=encoding, resourceVersion="0", **query
                )
            )
            for name, path, query in asked
        }


async def patch_status(outage: Outage, namespace: str, pod: str, said: Json, encoding: Encoding) -> None:
    path = f"{path_of(namespace, pod)}/status"
    answer = await outage.ask(path, encoding, method="PATCH", body=said, content_type=STRATEGIC)
    assert answer.status == 200, answer.body


async def see(events: dict[str, Events], expected: dict[str, tuple[str, bool]]) -> None:
    """Wait until both kinds of endpoints have this state."""
    for name in ("kube-proxy", "coredns"):
        await events[name].until(lambda seen: shown(seen)[-1:] == [expected], STARTED)


@BOTH
async def test_endpoints_follow_kubelet_through_an_outage_and_nothing_flaps_after_it(
    site: tuple[RealCloud, Outage], encoding: Encoding
) -> None:
    cloud, outage = site
    admin, namespace = cloud.admin, "default"
    await asyncio.to_thread(
        admin.post, f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}}
    )
    await asyncio.to_thread(admin.post, "/api/v1/nodes", {"metadata": {"name": outage.hub.node}})
    await asyncio.to_thread(admin.post, services(namespace), web())
    pods = ("web-0", "web-1", "web-2", "web-3")
    for number, name in enumerate(pods, 1):
        await asyncio.to_thread(admin.post, path_of(namespace), new_pod(name, outage.hub.node))
        if name != pods[-1]:
            await asyncio.to_thread(
                admin.patch, f"{path_of(namespace, name)}/status", status(f"10.1.0.{number}")
            )
    before = {name: (f"10.1.0.{number}", True) for number, name in enumerate(pods[:-1], 1)}
    # The hub uses protobuf readers' slices to find the slice of a new pod.
    changed = pods if encoding is Encoding.PROTOBUF else pods[:-1]
    after = {name: (f"10.2.0.{number}", True) for number, name in enumerate(changed, 1)}

    async with reading(outage, namespace, encoding) as events:
        await see(events, before)
        await events["kubelet"].first("ADDED", pods[-1])
        await outage.begin()
        # One pod restarts twice; another gets its first address, as its containers started slowly.
        await patch_status(outage, namespace, "web-0", status("10.2.0.9", "10.1.0.1", ready=False), encoding)
        await see(events, before | {"web-0": ("10.2.0.9", False)})
        for name, (address, _) in after.items():
            former = ["10.2.0.9"] if name == "web-0" else [before[name][0]] if name in before else []
            await patch_status(outage, namespace, name, status(address, *former), encoding)
        await see(events, after)
        slice_name = events["kube-proxy"].seen[-1].name
        asked = f"component=kube-proxy&resource=endpointslices&namespace={namespace}&name={slice_name}"
        said = await asyncio.to_thread(outage.hub.admin, f"/debug/explain?{asked}")
        assert "10.2.0.1 changed: by kubelet's status, since " in said, said
        marks = {name: len(each.seen) for name, each in events.items()}

        await outage.end()
        await asyncio.to_thread(outage.hub.wait_for_metric, "edgehub_journal_entries", 0, STARTED)
        caught_up = partial(cloud_has, after)
        path = slices(namespace)
        await asyncio.to_thread(admin.wait_for, path, slice_name, caught_up, timeout=STARTED)
        # kubelet's next report arrives with all earlier ones.
        await patch_status(outage, namespace, "web-0", status("10.3.0.1", "10.2.0.1"), encoding)
        last = after | {"web-0": ("10.3.0.1", True)}
        await see(events, last)
        for name in ("kube-proxy", "coredns"):
            assert shown(events[name].seen[marks[name] - 1 :]) == [after, last]


def cloud_has(expected: dict[str, tuple[str, bool]], found: Json) -> bool:
    return {each["addresses"][0] for each in found["endpoints"]} == {
        address for address, _ in expected.values()
    }


async def test_a_pod_report_survives_a_restart_and_an_older_slice_of_the_cloud(
    linked: tuple[Hub, Link], real_cloud: RealCloud, namespace: str
) -> None:
    """The endpoint controller writes the slice for another pod first."""

    def made_by_hand(*endpoints: tuple[str, str, str]) -> Json:
        """Return a slice of the Service, from addresses, pods and their uids."""
        made = endpoint_slice("web-1", "web")
        for address, name, uid in endpoints:
            target = {"kind": "Pod", "name": name, "uid": uid}
            made["endpoints"].append({"addresses": [address], "nodeName": "any", "targetRef": target})
        return made

    (hub, link), admin, encoding = linked, real_cloud.admin, Encoding.PROTOBUF
    outage = Outage(hub, link)
    await asyncio.to_thread(
        admin.post, f"{path_of(namespace)[:-5]}/serviceaccounts", {"metadata": {"name": "default"}}
    )
    pod = await asyncio.to_thread(admin.post, path_of(namespace), new_pod("web-0", hub.node))
    other, uid = ("10.1.9.9", "db-0", "1"), pod["metadata"]["uid"]
    await asyncio.to_thread(admin.post, slices(namespace), made_by_hand(("10.1.0.1", "web-0", uid)))
    async with started(hub):
        async with reading(outage, namespace, encoding) as events:
            await events["kubelet"].first("ADDED", "web-0")
            await events["kube-proxy"].first("ADDED", "web-1")
            await asyncio.to_thread(hub.wait_until_stored, namespace, 2)
            await outage.begin()
            await patch_status(outage, namespace, "web-0", status("10.2.0.1"), encoding)
            await events["kube-proxy"].first("MODIFIED", "web-1")
        await asyncio.to_thread(hub.kill)
        await asyncio.to_thread(hub.start)
        async with reading(outage, namespace, encoding) as events:
            first = await events["kube-proxy"].first("ADDED", "web-1")
            assert addresses(first.object) == {"web-0": ("10.2.0.1", True)}
            await outage.end()
            await asyncio.to_thread(hub.wait_for_metric, "edgehub_journal_entries", 0, STARTED)
            path = slices(namespace, "web-1")

            async def write(address: str) -> None:
                await asyncio.to_thread(admin.put, path, made_by_hand((address, "web-0", uid), other))

            states = [{"web-0": ("10.2.0.1", True)}]
            for address, stale in (("10.2.0.1", "10.1.0.1"), ("10.3.0.1", "10.2.0.1")):
                if address == "10.3.0.1":
                    await patch_status(outage, namespace, "web-0", status(address, stale), encoding)
                await write(stale)
                states.append({"web-0": (address, True), "db-0": ("10.1.9.9", True)})
                await events["kube-proxy"].until(lambda seen: shown(seen)[-1] == states[-1], STARTED)
                await write(address)
            assert shown(events["kube-proxy"].seen) == states
