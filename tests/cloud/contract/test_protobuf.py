"""Responses in protobuf: envelopes, lists, pages, frames, bookmarks and errors, read by the product's codec."""

from __future__ import annotations

import pytest

from kube.json_type import Json
from kube.wire.api_objects import ApiObject, decode_object
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.cloud.caller import Caller
from tests.cloud.contract.objects import names, version

PROTOBUF = str(Encoding.PROTOBUF)
ACCEPT = {"Accept": PROTOBUF}
CODEC = codec_for(Encoding.PROTOBUF)


def decoded(api_version: str, kind: str, raw: bytes) -> ApiObject:
    return decode_object(Encoding.PROTOBUF, api_version, kind, raw)


@pytest.fixture
async def slices(caller: Caller, namespace: str) -> str:
    """Return the path of three EndpointSlices, one without endpoints."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    for number in range(3):
        endpoints = [
            {
                "addresses": [f"10.0.0.{index + 1}"],
                "conditions": {"ready": index == 0},
                "nodeName": f"n{index}",
            }
            for index in range(number)
        ]
        labels = {"kubernetes.io/service-name": "s", "n": str(number)}
        await caller.post(
            path,
            {
                "metadata": {"name": f"slice-{number}", "labels": labels},
                "addressType": "IPv4",
                "endpoints": endpoints,
                "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
            },
        )
    return path


async def test_a_protobuf_list_is_decoded(caller: Caller, slices: str) -> None:
    reply = await caller.send("GET", slices, headers=ACCEPT)
    assert reply.headers["Content-Type"] == PROTOBUF
    page = CODEC.decode_list(reply.body)
    plain = await caller.get(slices)
    assert (page.api_version, page.kind) == ("discovery.k8s.io/v1", "EndpointSlice")
    assert page.version >= max(version(item) for item in plain["items"])
    assert [CODEC.peek(raw).name for raw in page.items] == names(plain)
    for raw, item in zip(page.items, plain["items"], strict=True):
        value = decoded(page.api_version, page.kind, raw)
        metadata = item["metadata"]
        assert (value.name, value.namespace, value.uid) == (
            metadata["name"],
            metadata["namespace"],
            metadata["uid"],
        )
        assert (value.version, value.labels) == (version(item), metadata["labels"])
        endpoints = value.fields.children("endpoints")
        assert [endpoint.texts("addresses") for endpoint in endpoints] == [
            endpoint["addresses"] for endpoint in item["endpoints"] or []
        ]
        assert [endpoint.child("conditions").flag("ready") for endpoint in endpoints] == [
            endpoint["conditions"]["ready"] for endpoint in item["endpoints"] or []
        ]
        assert value.fields.children("ports")[0].number("port") == 80


async def test_protobuf_lists_are_paged(caller: Caller, slices: str) -> None:
    reply = await caller.send("GET", slices, headers=ACCEPT, query={"limit": "2"})
    first = CODEC.decode_list(reply.body)
    assert (len(first.items), first.remaining) == (2, 1)
    query = {"limit": "2", "continue": first.continue_token}
    second = CODEC.decode_list((await caller.send("GET", slices, headers=ACCEPT, query=query)).body)
    assert [CODEC.peek(raw).name for raw in second.items] == ["slice-2"]
    assert (second.version, second.continue_token) == (first.version, "")


async def test_a_protobuf_object_is_decoded(caller: Caller, slices: str) -> None:
    reply = await caller.send("GET", f"{slices}/slice-1", headers=ACCEPT)
    api_version, kind, raw = CODEC.decode_single(reply.body)
    assert (api_version, kind) == ("discovery.k8s.io/v1", "EndpointSlice")
    assert decoded(api_version, kind, raw).fields.children("endpoints")[0].text("nodeName") == "n0"


async def test_protobuf_metadata_is_decoded(caller: Caller, slices: str) -> None:
    accept = {"Accept": f"{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
    reply = await caller.send("GET", f"{slices}/slice-1", headers=accept)
    api_version, kind, raw = CODEC.decode_single(reply.body)
    assert (api_version, kind) == ("meta.k8s.io/v1", "PartialObjectMetadata")
    assert decoded(api_version, kind, raw).labels["n"] == "1"
    accept = {"Accept": f"{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
    page = CODEC.decode_list((await caller.send("GET", slices, headers=accept)).body)
    assert (page.kind, [CODEC.peek(raw).labels["n"] for raw in page.items]) == (
        "PartialObjectMetadata",
        ["0", "1", "2"],
    )


async def test_a_protobuf_watch_is_decoded(caller: Caller, slices: str) -> None:
    asked = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
        "labelSelector": "n!=0",
        "timeoutSeconds": "1",
    }
    async with caller.watch(slices, ACCEPT, **asked) as stream:
        assert stream.headers["Content-Type"] == f"{PROTOBUF};stream=watch"
        await caller.patch(f"{slices}/slice-2", {"metadata": {"labels": {"n": "0"}}})
        reader = CODEC.frames()
        frames = reader.feed(await stream.raw())
        reader.close()
    frames_read = [(frame.type, frame.kind, CODEC.peek(frame.raw).name) for frame in frames]
    assert sorted(frames_read[:2]) == [("ADDED", "EndpointSlice", f"slice-{number}") for number in (1, 2)]
    assert frames_read[2:4] == [("BOOKMARK", "EndpointSlice", ""), ("DELETED", "EndpointSlice", "slice-2")]
    mark = decoded("discovery.k8s.io/v1", "EndpointSlice", frames[2].raw)
    assert mark.annotations == {"k8s.io/initial-events-end": "true"}
    assert CODEC.peek(frames[3].raw).version > mark.version


async def test_a_deletion_in_protobuf_is_decoded(caller: Caller, slices: str) -> None:
    uid = (await caller.get(f"{slices}/slice-1"))["metadata"]["uid"]
    reply = await caller.send("DELETE", f"{slices}/slice-1", headers=ACCEPT)
    assert (reply.status, reply.headers["Content-Type"]) == (200, PROTOBUF)
    status = decoded(*CODEC.decode_single(reply.body)).fields
    assert (status.text("status"), status.child("details").text("uid")) == ("Success", uid)


async def test_token_requests_are_accepted_in_json_and_protobuf(caller: Caller, namespace: str) -> None:
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await caller.post(accounts, {"metadata": {"name": "sa"}})
    accept = {"Accept": f"{PROTOBUF},application/json"}
    reply = await caller.send("POST", f"{accounts}/sa/token", body={}, headers=accept)
    assert reply.status == 201
    in_protobuf = reply.headers["Content-Type"] == PROTOBUF
    kind = CODEC.decode_single(reply.body)[1] if in_protobuf else reply.json()["kind"]
    assert kind == "TokenRequest"


async def test_errors_in_protobuf_are_decoded(caller: Caller, slices: str) -> None:
    reply = await caller.send("GET", f"{slices}/none", headers=ACCEPT)
    assert (reply.status, reply.headers["Content-Type"]) == (404, PROTOBUF)
    api_version, kind, raw = CODEC.decode_single(reply.body)
    assert (api_version, kind) == ("v1", "Status")
    status = decoded(api_version, kind, raw).fields
    assert (status.number("code"), status.text("reason")) == (404, "NotFound")
    assert status.text("message") == 'endpointslices.discovery.k8s.io "none" not found'
    assert status.child("details").text("group") == "discovery.k8s.io"


@pytest.mark.parametrize(
    ("path", "value", "spec"),
    [
        ("/api/v1/namespaces/{}/services", {"spec": {"ports": [{"port": 80}]}}, [("type", "ClusterIP")]),
        ("/api/v1/namespaces/{}/endpoints", {}, []),
        ("/api/v1/namespaces/{}/configmaps", {"data": {"k": "v"}}, []),
        ("/api/v1/namespaces/{}/secrets", {"stringData": {"k": "v"}}, []),
        (
            "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
            {"spec": {"holderIdentity": "h"}},
            [("holderIdentity", "h")],
        ),
    ],
    ids=lambda value: "",
)
async def test_protobuf_of_each_kind_is_decoded(
    caller: Caller, namespace: str, path: str, value: Json, spec: list[tuple[str, str]]
) -> None:
    path = path.format(namespace)
    created = await caller.post(path, {"metadata": {"name": "a"}, **value})
    reply = await caller.send("GET", f"{path}/a", headers=ACCEPT)
    one = decoded(*CODEC.decode_single(reply.body))
    assert (one.kind, one.api_version, one.version) == (
        created["kind"],
        created["apiVersion"],
        version(created),
    )
    assert [(name, one.fields.child("spec").text(name)) for name, _ in spec] == spec


async def test_an_object_is_updated_in_protobuf(caller: Caller, namespace: str) -> None:
    """kubelet updates its Lease this way: the object that it got, with another holder."""
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    await caller.post(leases, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "old"}})
    body = (await caller.send("GET", f"{leases}/l", headers=ACCEPT)).body
    lease = decoded(*CODEC.decode_single(body))
    lease.fields.child("spec").set("holderIdentity", "new")
    reply = await caller.send(
        "PUT",
        f"{leases}/l",
        body=CODEC.encode_single(lease.api_version, lease.kind, lease.encode()),
        content_type=PROTOBUF,
        headers=ACCEPT,
    )
    assert (reply.status, reply.headers["Content-Type"]) == (200, PROTOBUF)
    assert (await caller.get(f"{leases}/l"))["spec"]["holderIdentity"] == "new"
