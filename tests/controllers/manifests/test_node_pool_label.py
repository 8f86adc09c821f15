"""A kubelet cannot choose the pool of its own Node by any request that changes labels; other users can."""

from __future__ import annotations

import pytest

from kube.json_type import Json
from tests.cloud.rest import RestClient
from tests.controllers.support.scene import CLUSTER_ROLES, NODES, POOL_LABEL, Scene

pytestmark = [pytest.mark.real]

MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture
def kubelet(scene: Scene) -> tuple[str, RestClient]:
    """Create a Node in pool `own`; return a client with its kubelet's identity, once the policy is enforced."""
    node = scene.node("own")
    client = scene.cloud.client(scene.cloud.authority.issue_node(node))
    scene.until(lambda: label(client, f"{NODES}/{node}", "other") == 403)
    return node, client


def label(client: RestClient, path: str, pool: str | None) -> int:
    """Return the status of a request that sets the pool label or, with None, removes it."""
    patch = {"metadata": {"labels": {POOL_LABEL: pool}}}
    return client.request("PATCH", path, body=patch, headers=MERGE).status


@pytest.mark.parametrize("subresource", ["", "/status"])
@pytest.mark.parametrize("pool", ["other", "", None])
def test_kubelet_cannot_change_its_nodes_pool(
    scene: Scene, kubelet: tuple[str, RestClient], pool: str | None, subresource: str
) -> None:
    node, client = kubelet
    assert label(client, f"{NODES}/{node}{subresource}", pool) == 403
    assert scene.admin.get(f"{NODES}/{node}")["metadata"]["labels"][POOL_LABEL] == "own"


@pytest.mark.parametrize("subresource", ["", "/status"])
def test_kubelet_cannot_add_its_node_to_a_pool(scene: Scene, subresource: str) -> None:
    node = scene.node()
    client = scene.cloud.client(scene.cloud.authority.issue_node(node))
    scene.until(lambda: label(client, f"{NODES}/{node}{subresource}", "other") == 403)
    assert POOL_LABEL not in scene.admin.get(f"{NODES}/{node}")["metadata"].get("labels", {})


def test_kubelet_cannot_register_its_node_in_a_pool(scene: Scene) -> None:
    node = scene.name("node")
    client = scene.cloud.client(scene.cloud.authority.issue_node(node))
    body: Json = {"metadata": {"name": node, "labels": {POOL_LABEL: "other"}}}
    refused = client.request("POST", NODES, body=body)
    assert refused.status == 403
    assert "may not set its own label" in refused.json()["message"]
    body["metadata"]["labels"] = {"free": "x"}
    assert client.request("POST", NODES, body=body).status == 201


def test_the_pool_policy_allows_ordinary_writes_of_kubelet(kubelet: tuple[str, RestClient]) -> None:
    node, client = kubelet
    patch: Json = {"metadata": {"labels": {"free": "x", POOL_LABEL: "own"}, "annotations": {"a": "b"}}}
    assert client.request("PATCH", f"{NODES}/{node}", body=patch, headers=MERGE).status == 200
    ready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    assert client.request("PATCH", f"{NODES}/{node}/status", body=ready, headers=MERGE).status == 200


def test_an_administrator_may_change_a_nodes_pool(scene: Scene, kubelet: tuple[str, RestClient]) -> None:
    node, _ = kubelet
    assert label(scene.admin, f"{NODES}/{node}", "other") == 200
    assert label(scene.admin, f"{NODES}/{node}", None) == 200


def test_the_verb_join_allows_a_node_only_the_named_pool(
    scene: Scene, kubelet: tuple[str, RestClient]
) -> None:
    node, client = kubelet
    pool, role = scene.name("pool"), scene.name("role")
    rule = {
        "apiGroups": ["apps.openyurt.io"],
        "resources": ["nodepools"],
        "resourceNames": [pool],
        "verbs": ["join"],
    }
    scene.admin.post(CLUSTER_ROLES, {"metadata": {"name": role}, "rules": [rule]})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    scene.admin.post(bindings, {"metadata": {"name": role}, "roleRef": reference, "subjects": [group]})
    scene.until(lambda: label(client, f"{NODES}/{node}", pool) == 200)
    assert label(client, f"{NODES}/{node}", "other") == 403
    assert label(client, f"{NODES}/{node}", None) == 403
