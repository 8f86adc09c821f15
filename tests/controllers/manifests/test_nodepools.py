"""NodePool manifests on an API server: applied twice, defaults, refusals, columns."""

from __future__ import annotations

from typing import Any

import pytest

from kube.json_type import Json
from tests.cloud.rest import RestError
from tests.controllers.conftest import MANIFESTS
from tests.controllers.support.scene import POOLS, Scene

pytestmark = [pytest.mark.real]

# From OpenYurt's own documents, with every field of its version v1beta2.
OPENYURT: Json = {
    "type": "Edge",
    "hostNetwork": False,
    "labels": {"a": "b"},
    "annotations": {"c": "d"},
    "taints": [{"key": "e", "value": "f", "effect": "NoSchedule"}],
    "interConnectivity": True,
    "enableLeaderElection": True,
    "leaderElectionStrategy": "mark",
    "leaderNodeLabelSelector": {"big": "yes"},
    "leaderReplicas": 2,
    "poolScopeMetadata": [{"group": "discovery.k8s.io", "version": "v1", "resource": "endpointslices"}],
}


def test_all_manifests_are_accepted_again_and_change_nothing(scene: Scene) -> None:
    said = scene.cloud.apply(MANIFESTS).splitlines()
    # kubectl writes a policy again unless it contains the server's defaults.
    assert [line for line in said if not line.endswith("unchanged") and "policy" not in line] == []
    assert len(said) > 10


def test_an_object_of_openyurt_applies_unchanged(scene: Scene) -> None:
    name = scene.pool(**OPENYURT)
    assert scene.admin.get(f"{POOLS}/{name}")["spec"] == OPENYURT


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1", "v1alpha1"])
def test_no_field_is_lost_between_versions_of_a_pool(scene: Scene, version: str) -> None:
    """OpenYurt's versions before v1beta2 have a selector; the server converts with strategy None."""
    name, path = scene.name("pool"), POOLS.replace("v1beta2", version)
    spec = {**OPENYURT, "selector": {"matchLabels": {"apps.openyurt.io/nodepool": name}}}
    kind = {"apiVersion": f"apps.openyurt.io/{version}", "kind": "NodePool"}
    scene.admin.post(path, {**kind, "metadata": {"name": name}, "spec": spec})
    for other in ("v1beta2", "v1beta1", "v1alpha1"):
        found = scene.admin.get(f"{POOLS.replace('v1beta2', other)}/{name}")
        assert (found["apiVersion"], found["spec"]) == (f"apps.openyurt.io/{other}", spec)


def test_a_shared_resource_may_be_named_by_kind(scene: Scene) -> None:
    scope = [{"group": "discovery.k8s.io", "version": "v1", "kind": "EndpointSlice"}]
    name = scene.pool(poolScopeMetadata=scope)
    assert scene.admin.get(f"{POOLS}/{name}")["spec"]["poolScopeMetadata"] == scope


def test_defaults_of_a_pool_are_set(scene: Scene) -> None:
    name = scene.name("pool")
    body = {"apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool", "metadata": {"name": name}}
    assert scene.admin.post(POOLS, body)["spec"] == {
        "type": "Edge",
        "hostNetwork": False,
        "interConnectivity": False,
        "enableLeaderElection": False,
        "leaderElectionStrategy": "random",
        "leaderReplicas": 1,
        "poolScopeMetadata": [
            {"group": "", "version": "v1", "resource": "services"},
            {"group": "discovery.k8s.io", "version": "v1", "resource": "endpointslices"},
        ],
    }


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"type": "Moon"}, "Unsupported value"),
        ({"type": "Cloud", "hostNetwork": True}, "cannot use hostNetwork"),
        ({"leaderElectionStrategy": "mark"}, "mark needs a leaderNodeLabelSelector"),
        ({"leaderElectionStrategy": "mark", "leaderNodeLabelSelector": {}}, "mark needs"),
        ({"leaderElectionStrategy": "loudest"}, "Unsupported value"),
        ({"leaderReplicas": 0}, "greater than or equal to 1"),
        (
            {"poolScopeMetadata": [{"group": "", "version": "v1", "resource": "secrets"}]},
            "a pool shares services",
        ),
        (
            {"poolScopeMetadata": [{"group": "", "version": "v1", "resource": "pods"}]},
            "a pool shares services",
        ),
        ({"poolScopeMetadata": [{"version": "v1", "resource": "configmaps"}]}, "a pool shares services"),
        (
            {"poolScopeMetadata": [{"group": "discovery.k8s.io", "version": "v1", "resource": "services"}]},
            "a pool shares services",
        ),
        ({"poolScopeMetadata": [{"group": "*", "version": "v1", "resource": "*"}]}, "should match"),
        ({"poolScopeMetadata": [{"group": ""}]}, "Required value"),
        ({"poolScopeMetadata": [{"version": "v1"}]}, "by resource, or by kind"),
        (
            {"poolScopeMetadata": [{"version": "v1", "resource": "services", "kind": "Service"}]},
            "by resource, or by kind",
        ),
        ({"poolScopeMetadata": [{"version": "v1", "kind": "Secret"}]}, "a pool shares the kinds"),
        ({"taints": [{"key": "a", "effect": "Sometimes"}]}, "Unsupported value"),
    ],
)
def test_an_invalid_pool_is_refused(scene: Scene, spec: Json, message: str) -> None:
    def refusal(**spec: Any) -> str:
        with pytest.raises(RestError) as refused:
            scene.pool(**spec)
        assert refused.value.answer.status == 422
        return str(refused.value.answer.json()["message"])

    assert message in refusal(**spec)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"interConnectivity": False}, "interConnectivity cannot be changed"),
        ({"interConnectivity": None}, "interConnectivity cannot be changed"),
        ({"type": "Cloud"}, "type cannot be changed"),
        ({"hostNetwork": True}, "hostNetwork cannot be changed"),
        ({"leaderNodeLabelSelector": None}, "mark needs"),
    ],
)
def test_immutable_fields_of_a_pool_stay(scene: Scene, spec: Json, message: str) -> None:
    name = scene.pool(**OPENYURT)
    with pytest.raises(RestError, match=message):
        scene.admin.patch(f"{POOLS}/{name}", {"spec": spec})


def test_mutable_fields_of_a_pool_change(scene: Scene) -> None:
    name = scene.pool(**OPENYURT)
    spec: Json = {
        "leaderElectionStrategy": "random",
        "leaderNodeLabelSelector": None,
        "poolScopeMetadata": [],
    }
    changed = scene.admin.patch(f"{POOLS}/{name}", {"spec": spec})
    assert changed["spec"]["poolScopeMetadata"] == []


def test_a_pools_name_must_be_a_valid_label(scene: Scene) -> None:
    with pytest.raises(RestError, match="at most 63 characters"):
        scene.pool("p" * 64)


def test_kubectl_prints_the_columns_of_a_pool(scene: Scene) -> None:
    name = scene.pool()
    scene.admin.patch(f"{POOLS}/{name}/status", {"status": {"readyNodeNum": 3, "unreadyNodeNum": 4}})
    shown = scene.cloud.kubectl("get", "np", name).stdout.splitlines()
    assert shown[0].split() == ["NAME", "TYPE", "READYNODES", "NOTREADYNODES", "LEADER", "AGE"]
    assert shown[1].split()[:4] == [name, "Edge", "3", "4"]


def test_a_pool_with_nodes_is_not_deleted(scene: Scene) -> None:
    name = scene.pool()
    scene.admin.patch(f"{POOLS}/{name}/status", {"status": {"nodes": ["a", "b"]}})
    with pytest.raises(RestError, match=f"node pool {name} still has 2 nodes"):
        scene.admin.delete(f"{POOLS}/{name}")
    scene.admin.patch(f"{POOLS}/{name}/status", {"status": {"nodes": []}})
    scene.admin.delete(f"{POOLS}/{name}")
    assert not scene.there(POOLS, name)
