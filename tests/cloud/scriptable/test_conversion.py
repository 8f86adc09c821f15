"""Versions of EndpointSlices and Events, and that a conversion there and back changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cloud.scriptable.conversion import from_storage, stored_path, to_storage
from tests.cloud.scriptable.resources import Resource, ResourceTable

TABLE = ResourceTable()
V1BETA1 = TABLE.of_kind("discovery.k8s.io/v1beta1", "EndpointSlice")
V1 = TABLE.of_kind("discovery.k8s.io/v1", "EndpointSlice")
EVENTS = TABLE.of_kind("events.k8s.io/v1", "Event")
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


@pytest.mark.parametrize(
    ("v1beta1", "v1"),
    [
        (
            {"nodeName": "n", "topology": {HOSTNAME: "n", ZONE: "z", "rack": "r"}},
            {"nodeName": "n", "zone": "z", "deprecatedTopology": {"rack": "r"}},
        ),
        ({"topology": {HOSTNAME: "n"}}, {"deprecatedTopology": {HOSTNAME: "n"}}),
        (
            {"nodeName": "n", "topology": {HOSTNAME: "other"}},
            {"nodeName": "n", "deprecatedTopology": {HOSTNAME: "other"}},
        ),
        ({"addresses": ["1.2.3.4"]}, {"addresses": ["1.2.3.4"]}),
    ],
)
def test_endpoints_of_v1beta1_are_stored_as_v1(v1beta1: dict[str, Any], v1: dict[str, Any]) -> None:
    stored = to_storage(V1BETA1, {"metadata": {}, "endpoints": [v1beta1]})
    assert stored == {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {},
        "endpoints": [v1],
    }
    shown = from_storage(V1BETA1, stored)
    assert (shown["apiVersion"], shown["endpoints"]) == ("discovery.k8s.io/v1beta1", [v1beta1])


def test_a_v1_endpoint_says_its_node_and_zone_in_the_topology_of_v1beta1() -> None:
    shown = from_storage(V1BETA1, {"metadata": {}, "endpoints": [{"nodeName": "n", "zone": "z"}]})
    assert shown["endpoints"] == [{"nodeName": "n", "topology": {HOSTNAME: "n", ZONE: "z"}}]


def test_the_stored_version_is_shown_as_it_is() -> None:
    stored = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "endpoints": [{"zone": "z"}]}
    assert from_storage(V1, stored) == stored


def test_events_have_other_names_in_their_own_group() -> None:
    event = {"metadata": {}, "regarding": {"name": "p"}, "note": "m", "reason": "r", "deprecatedCount": 2}
    stored = to_storage(EVENTS, event)
    assert stored == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {},
        "involvedObject": {"name": "p"},
        "message": "m",
        "reason": "r",
        "count": 2,
    }
    assert from_storage(EVENTS, stored) == {"apiVersion": "events.k8s.io/v1", "kind": "Event", **event}


@pytest.mark.parametrize(
    ("resource", "field", "path"),
    [
        (EVENTS, "regarding.name", "involvedObject.name"),
        (EVENTS, "reportingController", "reportingComponent"),
        (EVENTS, "type", "type"),
        (V1, "metadata.name", "metadata.name"),
    ],
)
def test_where_a_selected_field_is_stored(resource: Resource, field: str, path: str) -> None:
    assert stored_path(resource, field) == path
