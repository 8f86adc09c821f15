"""Endpoints and slices of both versions, as they are read and kept."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from controllers.runtime.informer import WatchedResource
from controllers.triggers.backends import Backends, endpoint_slices_resource, endpoints_resource, triggered_at
from kube.json_type import Json

TRIGGER = "openyurt.io/updateTrigger"
META: Json = {
    "namespace": "ns",
    "name": "web-1",
    "resourceVersion": "7",
    "labels": {"kubernetes.io/service-name": "web", "other": "x"},
    "annotations": {TRIGGER: "1700000000", "large": "x" * 300_000},
}


def kept(kind: WatchedResource[Backends], obj: Json) -> tuple[Backends, Json]:
    trimmed = kind.transform(copy.deepcopy(obj))
    return kind.read(trimmed), trimmed


@pytest.mark.parametrize(
    ("endpoint", "nodes"),
    [
        ({"nodeName": "a", "addresses": ["10.0.0.1"]}, {"a"}),
        ({"topology": {"kubernetes.io/hostname": "b"}}, {"b"}),
        ({"deprecatedTopology": {"kubernetes.io/hostname": "c"}}, {"c"}),
        ({"addresses": ["10.0.0.1"]}, set()),
        ({"nodeName": None, "topology": ["garbage"]}, set()),
    ],
)
def test_the_nodes_of_a_slice(endpoint: Any, nodes: set[str]) -> None:
    backends, trimmed = kept(
        endpoint_slices_resource(TRIGGER), {"metadata": META, "endpoints": [endpoint, None]}
    )
    assert backends == Backends(("ns", "web"), frozenset(nodes), triggered=1_700_000_000)
    assert len(str(trimmed)) < 300


def test_endpoints_count_addresses_that_are_not_ready() -> None:
    subset = {"addresses": [{"nodeName": "a"}, {"ip": "10.0.0.1"}], "notReadyAddresses": [{"nodeName": "b"}]}
    obj = {"metadata": {"namespace": "ns", "name": "web"}, "subsets": [subset]}
    kind = endpoints_resource(TRIGGER)
    backends, _ = kept(kind, obj)
    assert backends == Backends(("ns", "web"), frozenset({"a", "b"}))
    assert sorted(kind.indexers["node"](backends)) == ["a", "b"]
    assert list(kind.indexers["service"](backends)) == ["ns/web"]


@pytest.mark.parametrize("part", [None, "x", [], [None], {}])
def test_garbage_names_no_node(part: Any) -> None:
    for kind, name in (
        (endpoint_slices_resource(TRIGGER), "endpoints"),
        (endpoints_resource(TRIGGER), "subsets"),
    ):
        assert kept(kind, {"metadata": META, name: part})[0].nodes == frozenset()


@pytest.mark.parametrize(
    ("value", "time"),
    [
        ("1700000000", 1_700_000_000),
        ("2023-11-14T22:13:20.000001Z", 1_700_000_000.000001),
        ("", 0),
        ("soon", 0),
        ("9" * 400, 0),
    ],
)
def test_the_time_of_a_trigger(value: str, time: float) -> None:
    assert triggered_at(value) == time
