"""Endpoints and slices of both versions, as they are parsed and stored."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from controllers.runtime.informer import WatchedResource
from controllers.triggers.backends import Backends, endpoint_slices_resource, endpoints_resource
from kube.json_type import Json

TRIGGER = "openyurt.io/updateTrigger"


def stored(kind: WatchedResource[Backends], obj: Json) -> tuple[Backends, Json]:
    trimmed = kind.transform(copy.deepcopy(obj))
    return kind.read(trimmed), trimmed


def test_unready_addresses_of_endpoints_are_included() -> None:
    subset = {"addresses": [{"nodeName": "a"}, {"ip": "10.0.0.1"}], "notReadyAddresses": [{"nodeName": "b"}]}
    obj = {"metadata": {"namespace": "ns", "name": "web"}, "subsets": [subset]}
    kind = endpoints_resource(TRIGGER)
    backends, _ = stored(kind, obj)
    assert backends == Backends(("ns", "web"), frozenset({"a", "b"}))
    assert sorted(kind.indexers["node"](backends)) == ["a", "b"]
    assert list(kind.indexers["service"](backends)) == ["ns/web"]


@pytest.mark.parametrize("part", [None, "x", [], [None], {}])
def test_malformed_endpoints_name_no_node(part: Any) -> None:
    meta: Json = {
        "namespace": "ns",
        "name": "web-1",
        "resourceVersion": "7",
        "labels": {"kubernetes.io/service-name": "web", "other": "x"},
        "annotations": {TRIGGER: "1700000000", "large": "x" * 300_000},
    }
    for kind, name in (
        (endpoint_slices_resource(TRIGGER), "endpoints"),
        (endpoints_resource(TRIGGER), "subsets"),
    ):
        assert stored(kind, {"metadata": meta, name: part})[0].nodes == frozenset()
