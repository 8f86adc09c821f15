"""Hubs may read what pools share and publish, on the real API server, and nothing else."""

from __future__ import annotations

import pytest

from tests.controllers.support.scene import CLUSTER_ROLES, CONFIG_MAPS, POOLS, Scene

pytestmark = [pytest.mark.real]
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles"


def test_the_roles_follow_the_pools(scene: Scene, manager: object) -> None:
    shared = [{"group": "batch", "version": "v1", "resource": "jobs"}]
    pool = scene.pool(interConnectivity=True, poolScopeMetadata=shared)
    rule = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list", "watch"]}
    scene.sees(CLUSTER_ROLES, "edgehub:pool-scope", lambda obj: rule in obj["rules"])
    scene.sees(
        ROLES, "edgehub:leader-hubs", lambda obj: f"leader-hub-{pool}" in obj["rules"][0]["resourceNames"]
    )

    node = scene.cloud.client(scene.cloud.authority.issue_node("edge"))
    scene.until(lambda: node.request("GET", "/apis/batch/v1/jobs").status == 200)
    scene.until(lambda: node.request("GET", f"{CONFIG_MAPS}/leader-hub-{pool}").status == 200)
    assert node.request("GET", CONFIG_MAPS).status == 403
    assert node.request("DELETE", "/apis/batch/v1/namespaces/default/jobs/any").status == 403

    scene.admin.patch(f"{POOLS}/{pool}", {"spec": {"poolScopeMetadata": []}})
    scene.sees(CLUSTER_ROLES, "edgehub:pool-scope", lambda obj: rule not in obj["rules"])
    scene.until(lambda: node.request("GET", "/apis/batch/v1/jobs").status == 403)
    scene.admin.delete(f"{POOLS}/{pool}")
    scene.sees(
        ROLES,
        "edgehub:leader-hubs",
        lambda obj: not obj["rules"] or f"leader-hub-{pool}" not in obj["rules"][0]["resourceNames"],
    )


def test_a_role_that_was_changed_is_put_right(scene: Scene, manager: object) -> None:
    scene.pool()
    scene.sees(CLUSTER_ROLES, "edgehub:pool-scope", lambda obj: obj["rules"])
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    scene.admin.patch(f"{CLUSTER_ROLES}/edgehub:pool-scope", {"rules": everything})
    scene.sees(CLUSTER_ROLES, "edgehub:pool-scope", lambda obj: obj["rules"] != everything)
