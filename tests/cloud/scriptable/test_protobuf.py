"""JSON to protobuf and back through the schema table, and protobuf's own runtime as the judge."""

from __future__ import annotations

from typing import Any

import pytest

from kube.wire.schema import message_type_of
from tests.cloud.scriptable import wire
from tests.cloud.scriptable.protobuf import decode_body, encode_message, speaks_protobuf
from tests.cloud.scriptable.resources import ResourceTable

METADATA = {
    "name": "a",
    "namespace": "n",
    "uid": "u",
    "resourceVersion": "7",
    "labels": {"x": "1", "y": ""},
    "annotations": {"k": "v"},
}
OBJECTS: list[dict[str, Any]] = [
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": METADATA,
        "spec": {
            "ports": [{"name": "p", "port": 80}, {"port": 81}],
            "clusterIP": "1.2.3.4",
            "type": "ClusterIP",
        },
    },
    {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": METADATA,
        "endpoints": [
            {"addresses": ["1.2.3.4", "::1"], "conditions": {"ready": False}, "nodeName": "n", "zone": "z"},
            {"addresses": ["1.2.3.5"], "conditions": {"ready": True, "serving": True}},
        ],
        "addressType": "IPv4",
    },
    {
        "apiVersion": "discovery.k8s.io/v1beta1",
        "kind": "EndpointSlice",
        "metadata": METADATA,
        "endpoints": [{"addresses": ["1.2.3.4"], "topology": {"kubernetes.io/hostname": "n"}}],
    },
    {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": METADATA,
        "spec": {"holderIdentity": "h", "leaseTransitions": -1},
    },
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": METADATA, "data": {"a": "b"}, "immutable": True},
    {"apiVersion": "v1", "kind": "Event", "metadata": METADATA, "involvedObject": {"name": "p"}, "count": 2},
    {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": METADATA, "regarding": {"name": "p"}},
]


@pytest.mark.parametrize("value", OBJECTS, ids=lambda value: value["kind"])
def test_an_object_comes_back_as_it_went(value: dict[str, Any]) -> None:
    message = encode_message(value)
    body = wire.envelope(value["apiVersion"], value["kind"], message)
    assert decode_body(body) == value
    judge = message_type_of(value["apiVersion"], value["kind"]).parse(message)
    assert judge.SerializeToString() == message
    assert judge.metadata.name == "a"


def test_what_the_schema_does_not_know_is_lost() -> None:
    value = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "a"},
        "data": {"a": "Yg=="},
        "type": None,
    }
    body = wire.envelope("v1", "Secret", encode_message(value))
    assert decode_body(body) == {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}


def test_unknown_fields_of_any_wire_type_are_passed_over() -> None:
    message = wire.block(1, wire.block(1, "a") + b"\x79" + bytes(8) + b"\x7d" + bytes(4)) + wire.integer(
        99, 1
    )
    assert decode_body(wire.envelope("v1", "Node", message))["metadata"] == {"name": "a"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        wire.MAGIC + b"\x0a",
        wire.MAGIC + b"\x0a\x05ab",
        wire.MAGIC + b"\x0b",
        wire.MAGIC + b"\xff" * 12,
        wire.envelope("v1", "Thing", b""),
        wire.envelope("v1", "Node", b"\x08\x01"),
    ],
    ids=["empty", "json", "no length", "torn", "group", "endless number", "unknown kind", "wrong wire type"],
)
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_body(body)


def test_kinds_outside_the_schema_are_json_alone() -> None:
    table = ResourceTable()
    spoken = {resource.kind for resource in table if speaks_protobuf(resource)}
    assert spoken >= {
        "Service",
        "EndpointSlice",
        "Endpoints",
        "Node",
        "Pod",
        "ConfigMap",
        "Secret",
        "Lease",
        "Namespace",
        "Event",
    }
    assert spoken.isdisjoint({"NodePool", "CSIDriver", "SelfSubjectReview"})
