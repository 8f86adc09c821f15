"""A hub's permissions with and without the product's RBAC, and those that it must not get."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.cloud.fixtures import HUB_NODES, HUB_RBAC
from tests.cloud.real import RealCloud
from tests.cloud.rest import RestClient
from tests.cloud.rights import role, rule
from tests.cloud.versions import chosen, minor_of
from tests.support.polling import eventually

SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
POOLS = "/apis/apps.openyurt.io/v1beta2/nodepools"
CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
RULES = {"fieldSelector": "metadata.name=yurt-hub-cfg"}
CLIENT_CA = {"fieldSelector": "metadata.name=extension-apiserver-authentication"}
ADDED = [
    (SLICES, {}),
    (SLICES, {"watch": "true"}),
    ("/api/v1/endpoints", {}),
    ("/apis/networking.k8s.io/v1/servicecidrs", {}),
    (POOLS, {}),
    (POOLS, {"watch": "true"}),
    (f"{CONFIG_MAPS}/yurt-hub-cfg", {}),
    (CONFIG_MAPS, RULES),
    (CONFIG_MAPS, {**RULES, "watch": "true"}),
    (CONFIG_MAPS, CLIENT_CA),
    (CONFIG_MAPS, {**CLIENT_CA, "watch": "true"}),
]
"""Resources that a hub reads and the Node authorizer alone forbids."""
ALLOWED = {200, 404}
"""Statuses of an authorized request: the object or its kind may not exist."""
DEADLINE = 60.0
"""Seconds until a change of RBAC reaches the authorizer; milliseconds on idle cores."""


def status(client: RestClient, path: str, query: Mapping[str, str]) -> int:
    """Return the status of a request; the server ends a permitted watch after a second."""
    more = {"timeoutSeconds": "1"} if "watch" in query else {}
    return client.request("GET", path, query={**query, **more}).status


def becomes(client: RestClient, path: str, query: Mapping[str, str], allowed: bool) -> None:
    eventually(lambda: (status(client, path, query) in ALLOWED) is allowed, path, DEADLINE)


def test_the_role_is_applied_twice_and_adds_exactly_the_permissions_of_hubs(
    real_cloud: RealCloud, node: str
) -> None:
    def verbs(answer: str) -> list[str]:
        """Return kubectl's verb for each object."""
        return [line.split()[-1] for line in answer.splitlines()]

    itself = real_cloud.client(real_cloud.authority.issue_node(node))
    for manifest in (HUB_NODES, HUB_RBAC):
        real_cloud.kubectl("delete", "-f", str(manifest), "--ignore-not-found")
    for each in ADDED:
        becomes(itself, *each, allowed=False)

    assert set(verbs(real_cloud.apply(HUB_RBAC))) == {"created"}
    assert set(verbs(real_cloud.apply(HUB_RBAC))) == {"unchanged"}
    for each in ADDED:
        becomes(itself, *each, allowed=True)
    # The minor version from which the Node authorizer evaluates selectors.
    selectors_authorized = 32
    # Permissions that a node must not get from running a hub.
    never = [
        (CONFIG_MAPS, {}),
        (CONFIG_MAPS, {"fieldSelector": "metadata.name=kubeadm-config"}),
        ("/api/v1/configmaps", {}),
        ("/api/v1/secrets", {}),
        *([("/api/v1/pods", {})] if minor_of(chosen()) >= selectors_authorized else []),
        (f"{CONFIG_MAPS}/leader-hub-hangzhou", {}),
    ]
    assert [each for each in never if status(itself, *each) != 403] == []
    # NodePools list the nodes of pools. One more manifest permits reading the labels of all nodes.
    if minor_of(chosen()) >= selectors_authorized:
        assert status(itself, "/api/v1/nodes", {}) == 403
    real_cloud.apply(HUB_NODES)
    becomes(itself, "/api/v1/nodes", {}, allowed=True)


@pytest.mark.usefixtures("hub_rbac")
def test_the_role_of_hubs_grants_no_write(real_cloud: RealCloud, node: str) -> None:
    itself = real_cloud.client(real_cloud.authority.issue_node(node))
    for path, _ in ADDED:
        assert itself.request("DELETE", path).status == 403, path


@pytest.mark.usefixtures("hub_rbac")
def test_the_role_of_hubs_is_bound_to_nodes_only(real_cloud: RealCloud) -> None:
    stranger = real_cloud.client(real_cloud.authority.issue_client("stranger"))
    assert {status(stranger, path, query) for path, query in ADDED} == {403}


@pytest.mark.usefixtures("hub_rbac")
def test_the_managers_role_for_leaders_survives_another_apply(real_cloud: RealCloud, node: str) -> None:
    itself = real_cloud.client(real_cloud.authority.issue_node(node))
    only = {**rule("", "configmaps", "get list watch"), "resourceNames": ["leader-hub-beijing"]}
    real_cloud.apply([role("edgehub:leader-hubs", [only], "kube-system")])
    real_cloud.apply(HUB_RBAC)
    selected = {"fieldSelector": "metadata.name=leader-hub-beijing"}
    becomes(itself, CONFIG_MAPS, selected, allowed=True)
    assert status(itself, f"{CONFIG_MAPS}/leader-hub-hangzhou", {}) == 403


def test_self_reviews_need_no_rule(real_cloud: RealCloud, node: str) -> None:
    itself = real_cloud.client(real_cloud.authority.issue_node(node))
    attributes = {"verb": "list", "group": "discovery.k8s.io", "resource": "endpointslices"}
    review = {"spec": {"resourceAttributes": attributes}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = itself.post(
        path, {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", **review}
    )
    assert isinstance(answer["status"]["allowed"], bool)
