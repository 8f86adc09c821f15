"""The Service of a grid: created once, and changed only if it differs from the grid's template."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from addons.filters.builtin.topology import Order, parse_topology
from controllers.grids import (
    APPLIED,
    GRID_KEY,
    Grid,
    key_label,
    new_service,
    refused_fields,
    restricts,
    service_patch,
)
from kube.json_type import Json

GRID = Grid(
    "ns",
    "web",
    uid="u",
    labels={"team": "a"},
    key="zone1",
    template={"selector": {"app": "web"}, "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}]},
)


def served(grid: Grid, **spec: Any) -> Json:
    """Return the grid's Service as a server returns it, with its defaults."""
    service = copy.deepcopy(new_service(grid))
    service["metadata"]["resourceVersion"] = "7"
    for port in service["spec"].get("ports", []):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port["port"])
    defaults = {
        "clusterIP": "10.96.0.9",
        "clusterIPs": ["10.96.0.9"],
        "ipFamilies": ["IPv4"],
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
    }
    service["spec"] = {**defaults, **service["spec"], **spec}
    return service


def with_template(**changes: Any) -> Grid:
    return replace(GRID, template={**GRID.template, **changes})


@pytest.mark.parametrize(
    "template",
    [
        {},
        {"ports": [{"port": 80}, {"port": 81, "name": "x"}]},
        {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}}},
        {"publishNotReadyAddresses": False, "externalName": "", "externalIPs": []},
        {"topologyKeys": ["zone1"], "ipFamily": "IPv4"},
        {"selector": None},
        {"ports": None},
    ],
)
def test_a_service_completed_by_the_server_needs_no_patch(template: dict[str, Any]) -> None:
    grid = with_template(**template)
    assert service_patch(grid, served(grid)) == {}


def test_a_list_extended_by_the_server_is_no_difference() -> None:
    grid = with_template(ipFamilyPolicy="PreferDualStack", ipFamilies=["IPv4"])
    assert service_patch(grid, served(grid, ipFamilies=["IPv4", "IPv6"])) == {}


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ({"selector": {"app": "v2"}}, {"selector": {"app": "v2"}}),
        ({"selector": {"tier": "x"}}, {"selector": {"app": None, "tier": "x"}}),
        ({"selector": None}, {"selector": None}),
        ({"ports": [{"port": 81}]}, {"ports": [{"port": 81}]}),
        ({"ports": [{"port": 80, "protocol": "TCP"}]}, {"ports": [{"port": 80, "protocol": "TCP"}]}),
        ({"type": "NodePort"}, {"type": "NodePort"}),
        ({"sessionAffinity": "ClientIP"}, {"sessionAffinity": "ClientIP"}),
    ],
)
def test_a_changed_template_is_patched(new: dict[str, Any], expected: Json) -> None:
    patch = service_patch(with_template(**new), served(GRID))
    assert patch["spec"] == expected
    assert patch["metadata"]["resourceVersion"] == "7"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("externalIPs", ["192.0.2.1"]),
        ("externalName", "elsewhere.example"),
        ("loadBalancerIP", "192.0.2.1"),
        ("loadBalancerClass", "example.com/lb"),
        ("loadBalancerSourceRanges", ["0.0.0.0/0"]),
        ("allocateLoadBalancerNodePorts", True),
        ("healthCheckNodePort", 30000),
        ("type", "LoadBalancer"),
        ("type", "ExternalName"),
        ("clusterIP", "10.96.0.10"),
        ("clusterIPs", ["10.96.0.10"]),
        ("aFieldOfTomorrow", "x"),
    ],
)
def test_a_template_cannot_set_fields_that_reach_beyond_its_pods(field: str, value: object) -> None:
    grid = with_template(**{field: value})
    assert field not in new_service(grid)["spec"]
    assert service_patch(grid, served(GRID)) == {}
    assert refused_fields(grid) == [field]


def test_a_field_passed_on_by_an_earlier_manager_is_removed() -> None:
    live = served(GRID, externalIPs=["192.0.2.1"])
    live["metadata"]["annotations"][APPLIED] = '{"labels":[],"spec":["externalIPs","ports","selector"]}'
    patch = service_patch(with_template(externalIPs=["192.0.2.1"]), live)
    assert patch["spec"] == {"externalIPs": None}


def test_a_port_has_known_fields_only() -> None:
    grid = with_template(ports=[{"port": 80, "hostPort": 80}])
    assert new_service(grid)["spec"]["ports"] == [{"port": 80}]


@pytest.mark.parametrize("field", ["type", "clusterIP"])
def test_headless_services_and_node_ports_are_allowed(field: str) -> None:
    value = {"type": "NodePort", "clusterIP": "None"}[field]
    grid = with_template(**{field: value})
    assert new_service(grid)["spec"][field] == value
    assert refused_fields(grid) == []


def test_node_ports_stay_with_their_ports() -> None:
    grid = with_template(type="NodePort")
    live = served(grid)
    live["spec"]["ports"][0]["nodePort"] = 30080
    assert service_patch(grid, live) == {}
    both = with_template(type="NodePort", ports=[*GRID.template["ports"], {"port": 81}])
    assert service_patch(both, live)["spec"]["ports"] == [
        {"port": 80, "protocol": "TCP", "targetPort": 8080, "nodePort": 30080},
        {"port": 81},
    ]


def test_labels_and_key_are_updated_and_other_labels_stay() -> None:
    live = served(GRID)
    live["metadata"]["labels"]["foreign"] = "x"
    live["metadata"]["annotations"]["foreign"] = "x"
    changed = replace(GRID, labels={"unit": "b"}, key="zone2")
    patch = service_patch(changed, live)
    assert patch["metadata"]["labels"] == {"team": None, "unit": "b", GRID_KEY: "zone2"}
    assert patch["metadata"]["annotations"]["topologyKeys"] == '["zone2"]'
    assert "spec" not in patch


def test_annotations_of_the_grid_are_copied_to_its_service_and_removed() -> None:
    given = {
        "team": "a",
        "openyurt.io/topologyKeys": "kubernetes.io/hostname",
        "topologyKeys": "[]",
        APPLIED: "{}",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
    }
    grid = replace(GRID, annotations=given)
    live = served(grid)
    assert live["metadata"]["annotations"]["openyurt.io/topologyKeys"] == "kubernetes.io/hostname"
    assert live["metadata"]["annotations"]["topologyKeys"] == '["zone1"]', "the manager's own"
    assert "kubectl.kubernetes.io/last-applied-configuration" not in live["metadata"]["annotations"]
    assert service_patch(grid, live) == {}
    live["metadata"]["annotations"]["foreign"] = "x"
    patch = service_patch(replace(GRID, annotations={"team": "b"}), live)["metadata"]["annotations"]
    assert patch.pop(APPLIED)
    assert patch == {"team": "b", "openyurt.io/topologyKeys": None}


@pytest.mark.parametrize(
    ("key", "is_used"),
    [
        *(("zone1", True), ("topology.kubernetes.io/zone", True), ("a b", False), ("-bad", False)),
        *(("x" * 64, False), ("*", False), ("a/b/c", False), ("", False), ("zone\n", False)),
    ],
)
def test_a_grid_key_is_valid_if_hubs_can_parse_it(key: str, is_used: bool) -> None:
    assert restricts(key) is is_used
    grid = replace(GRID, key=key)
    text = new_service(grid)["metadata"]["annotations"]["topologyKeys"]
    topology = parse_topology({"topologyKeys": text})
    assert (topology.keys == (key,) and topology.order is Order.ANY) is is_used


def test_an_orphaned_service_gets_its_owner_and_retains_other_owners() -> None:
    live = served(GRID)
    live["metadata"]["ownerReferences"] = [{"kind": "Other", "name": "o", "uid": "x"}]
    owners = service_patch(GRID, live)["metadata"]["ownerReferences"]
    assert [each["uid"] for each in owners] == ["x", "u"]


def test_rendering_does_not_change_the_grid() -> None:
    labels, template = dict(GRID.labels), copy.deepcopy(GRID.template)
    new_service(GRID)
    service_patch(GRID, {"metadata": {}, "spec": {}})
    assert (GRID.labels, GRID.template) == (labels, template)


@pytest.mark.parametrize("note", ["", "{", "[]", '{"labels":"team","spec":[1]}'])
def test_a_malformed_record_removes_nothing(note: str) -> None:
    live = served(GRID)
    live["metadata"]["annotations"][APPLIED] = note
    patch = service_patch(GRID, live)
    assert set(patch["metadata"]["annotations"]) == {APPLIED}
    assert "spec" not in patch


@pytest.mark.parametrize(
    ("key", "label"),
    [
        ("zone1", "zone1"),
        ("topology.kubernetes.io/zone", "topology.kubernetes.io_zone"),
        ("-bad", None),
        ("x" * 64, None),
    ],
)
def test_a_grid_key_is_shortened_to_a_valid_label(key: str, label: str | None) -> None:
    assert key_label(key) == label
