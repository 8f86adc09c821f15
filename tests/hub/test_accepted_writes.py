"""An outage does not undo a client's earlier write through the hub, on the real control plane."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.cloud.rights import account, rights, rule, user
from tests.hub.support.outage import JSON, PROTOBUF, Outage
from tests.hub.support.process import Hub, started
from tests.support.objects import obj


@pytest.mark.parametrize("is_killed", [False, True], ids=["", "kill -9"])
async def test_a_second_csi_driver_of_a_first_boot_is_registered_in_the_outage(
    linked: tuple[Hub, Link], real_cloud: RealCloud, node: str, is_killed: bool
) -> None:
    """kubelet read the CSINode between the two registrations; offline it once got the first driver only."""

    def csi_node(name: str, *drivers: str) -> dict[str, Any]:
        specs = [{"name": driver, "nodeID": name, "topologyKeys": []} for driver in drivers]
        return obj("CSINode", name, apiVersion="storage.k8s.io/v1", spec={"drivers": specs})

    hub, link = linked
    csinodes = "/apis/storage.k8s.io/v1/csinodes"
    async with started(hub):
        outage = Outage(hub, link)
        path = f"{csinodes}/{node}"
        made = csi_node(node, "one")
        assert (await outage.ask(csinodes, method="POST", body=made)).status in (201, 409)
        before = (await outage.ask(path)).json()
        assert (await outage.ask(path, PROTOBUF)).status == 200
        before["spec"]["drivers"].append({"name": "two", "nodeID": node, "topologyKeys": []})
        written = await outage.ask(path, method="PUT", body=before)
        assert written.status == 200, written.body
        if is_killed:
            await asyncio.to_thread(hub.kill)
        link.refuse()
        if is_killed:
            await asyncio.to_thread(hub.start)
        for accept in (JSON, PROTOBUF):
            after = await outage.ask(path, accept)
            assert after.status == 200, after.body
            assert b"two" in after.body
            assert Encoding(after.headers["Content-Type"]) == accept


async def test_a_caller_with_a_copy_gets_the_write_of_another_in_an_outage(
    outage: Outage, real_cloud: RealCloud, namespace: str, node_name: str
) -> None:
    """A write by one identity once caused 503 for all others in the next outage, including the node."""
    verbs = rule("", "configmaps", "get update")
    subjects = [user(f"system:node:{node_name}"), account(namespace, "pod")]
    granted = rights("others", [verbs], *subjects, namespace=namespace)
    await asyncio.to_thread(real_cloud.apply, granted)
    token = await asyncio.to_thread(real_cloud.token, namespace, "pod")
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    made = {"metadata": {"name": "x"}, "data": {"value": "0"}}
    await asyncio.to_thread(real_cloud.admin.post, maps, made)

    async def values() -> list[str]:
        answers = [await outage.ask(f"{maps}/x", accept) for accept in (JSON, PROTOBUF)]
        answers.append(await outage.ask(f"{maps}/x", component="flanneld", token=token))
        assert [each.status for each in answers] == [200] * 3, answers
        return [each.json()["data"]["value"] for each in answers[::2]]

    mark = real_cloud.audit_mark()
    await values()
    while not any(
        each.uri.endswith("/selfsubjectreviews") and each.stage == "ResponseComplete"
        for each in await asyncio.to_thread(real_cloud.audit, mark)
    ):
        await values()  # the hub reviews the token concurrently with the first request
    await values()
    for value, token_of_writer in {"by the node": "", "by the pod": token}.items():
        body = {**made, "data": {"value": value}}
        written = await outage.ask(
            f"{maps}/x", component="flanneld", method="PUT", body=body, token=token_of_writer
        )
        assert written.status == 200, written.body
        async with outage.away():
            assert await values() == [value] * 2


@pytest.mark.parametrize("component", ["kubelet", "curl"])
async def test_no_kind_of_write_is_undone_by_an_outage(
    outage: Outage, real_cloud: RealCloud, namespace: str, node_name: str, component: str
) -> None:
    """After read, write and outage, the former or deleted object once returned in 12 of 12 cases."""
    verbs = rule("", "configmaps", "get list create update patch delete")
    granted = rights("writes", [verbs], user(f"system:node:{node_name}"), namespace=namespace)
    await asyncio.to_thread(real_cloud.apply, granted)
    maps = f"/api/v1/namespaces/{namespace}/configmaps"

    def config_map(name: str, value: str) -> dict[str, Any]:
        metadata = {"name": name, "namespace": namespace}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": value}}

    merge, apply = "application/merge-patch+json", "application/apply-patch+yaml"
    forms = {
        "table": "application/json;as=Table;v=v1;g=meta.k8s.io",
        "metadata": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "yaml": "application/yaml",
    }
    names = ["put", "patch", "apply", "delete", "finalizer", "protobuf", *forms]
    for name in names:
        made = config_map(name, "old")
        if name == "finalizer":
            made["metadata"]["finalizers"] = ["example.com/f"]
        await asyncio.to_thread(real_cloud.admin.post, maps, made)
        for accept in (JSON, PROTOBUF):
            assert (await outage.ask(f"{maps}/{name}", accept)).status == 200
    assert (await outage.ask(maps, component="flanneld")).status == 200
    codec = codec_for(Encoding.PROTOBUF)
    packed = codec.decode_single((await outage.ask(f"{maps}/protobuf", PROTOBUF)).body)[2]
    body = codec.encode_single("v1", "ConfigMap", packed.replace(b"old", b"new"))

    async def write(
        method: str, name: str, value: Any, kind: str = JSON, query: str = "", accept: str = JSON
    ) -> None:
        target, how = f"{maps}/{name}{query}", {"method": method, "body": value, "content_type": kind}
        answer = await outage.ask(target, accept, component, **how)
        assert answer.status in (200, 202), answer.body

    await write("PUT", "put", config_map("put", "new"))
    await write("PATCH", "patch", {"data": {"value": "new"}}, merge)
    await write("PATCH", "apply", config_map("apply", "new"), apply, "?fieldManager=m&force=true")
    await write("DELETE", "delete", None)
    await write("DELETE", "finalizer", None)
    await write("PUT", "protobuf", body, PROTOBUF)
    for name, accept in forms.items():
        await write("PUT", name, config_map(name, "new"), accept=accept)
    async with outage.away():
        for name in names:
            for accept in (JSON, PROTOBUF):
                found = await outage.ask(f"{maps}/{name}", accept)
                if name == "delete":
                    assert found.status in (404, 503), name
                elif name == "finalizer":
                    assert found.status == 200
                    assert b"deletionTimestamp" in found.body or accept == PROTOBUF
                else:
                    assert (found.status, b"old" in found.body) == (200, False), name
        listed = await outage.ask(maps, component="flanneld")
        values = {item["metadata"]["name"]: item["data"]["value"] for item in listed.json()["items"]}
        expected = {"put": "new", "patch": "new", "apply": "new", "finalizer": "old", "protobuf": "new"}
        expected |= dict.fromkeys(forms, "new")
        assert {name: value for name, value in values.items() if name in names} == expected
    patch = {"metadata": {"finalizers": None}}
    await asyncio.to_thread(real_cloud.admin.patch, f"{maps}/finalizer", patch)


async def test_a_deleted_object_stays_deleted_and_a_dry_run_changes_nothing(
    outage: Outage, real_cloud: RealCloud, namespace: str, node_name: str
) -> None:
    """Deleted objects once returned in their last state, and `kubectl delete --dry-run=server` removed objects from the
    node's lists."""
    resources = rule("", "configmaps pods", "get list create update patch delete deletecollection")
    namespaces = rule("", "namespaces namespaces/finalize", "get update delete")
    node = user(f"system:node:{node_name}")
    granted = rights("removals", [resources], node, namespace=namespace)
    await asyncio.to_thread(real_cloud.apply, [*granted, *rights("finalizing", [namespaces], node)])
    maps, pods = (f"/api/v1/namespaces/{namespace}/{kind}" for kind in ("configmaps", "pods"))
    removed = [f"{maps}/patched", f"{maps}/put", f"{maps}/not-dry", f"{pods}/mine"]
    left = [f"{maps}/in-query", f"{maps}/in-body", f"{maps}/in-protobuf", f"{maps}/in-collection"]
    await asyncio.to_thread(real_cloud.token, namespace, "default")
    for path in (*removed[:3], *left):
        name = path.rpartition("/")[2]
        finalizers = ["example.com/f"] if name in ("patched", "put") else []
        made = {"metadata": {"name": name, "labels": {"name": name}, "finalizers": finalizers}}
        await asyncio.to_thread(real_cloud.admin.post, maps, made)
    pod = {"nodeName": node_name, "containers": [{"name": "c", "image": "i"}]}
    await asyncio.to_thread(real_cloud.admin.post, pods, {"metadata": {"name": "mine"}, "spec": pod})
    other = f"/api/v1/namespaces/{namespace}-other"
    await asyncio.to_thread(
        real_cloud.admin.post, "/api/v1/namespaces", {"metadata": {"name": f"{namespace}-other"}}
    )
    for path in (*removed, *left, other):
        for accept in (JSON, PROTOBUF):
            assert (await outage.ask(path, accept)).status == 200
    assert (await outage.ask(maps, component="flanneld")).status == 200

    async def write(method: str, path: str, body: Any = None, kind: str = JSON) -> Any:
        answer = await outage.ask(path, method=method, body=body, content_type=kind)
        assert answer.status == 200, answer.body
        return answer.json()

    options = {"kind": "DeleteOptions", "apiVersion": "v1"}
    dry = {**options, "dryRun": ["All"]}
    await write("DELETE", f"{maps}/patched")
    await write(
        "PATCH", f"{maps}/patched", {"metadata": {"finalizers": None}}, "application/merge-patch+json"
    )
    held = await write("DELETE", f"{maps}/put")
    held["metadata"]["finalizers"] = []
    await write("PUT", f"{maps}/put", held)
    await write("DELETE", f"{maps}/not-dry?dryRun=All", options)
    await write("DELETE", f"{pods}/mine", {**options, "gracePeriodSeconds": 0})
    ending = await write("DELETE", other)
    ending["spec"]["finalizers"] = []
    await write("PUT", f"{other}/finalize", ending)
    packed = codec_for(Encoding.PROTOBUF).encode_single("v1", "DeleteOptions", b"\x2a\x03All")
    await write("DELETE", f"{maps}/in-query?dryRun=All")
    await write("DELETE", f"{maps}/in-body", dry)
    await write("DELETE", f"{maps}/in-protobuf", packed, PROTOBUF)
    await write("DELETE", f"{maps}?labelSelector=name%3Din-collection", dry)
    async with outage.away():
        for accept in (JSON, PROTOBUF):
            found = {path: (await outage.ask(path, accept)).status for path in (*removed, *left, other)}
            assert found == dict.fromkeys(left, 200) | dict.fromkeys([*removed, other], 503)
        listed = await outage.ask(maps, component="flanneld")
        names = {f"{maps}/{item['metadata']['name']}" for item in listed.json()["items"]}
        assert names - {f"{maps}/kube-root-ca.crt"} == {*left}
