"""Hubs may read the ConfigMaps of pools by name, on the real API server, and nothing else."""

from __future__ import annotations

import pytest

from tests.controllers.support.scene import CONFIG_MAPS, POOLS, Scene

pytestmark = [pytest.mark.real]
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles"


def test_the_role_follows_the_pools(scene: Scene, manager: object) -> None:
    pool = scene.pool(interConnectivity=True)
    scene.sees(
        ROLES, "edgehub:leader-hubs", lambda obj: f"leader-hub-{pool}" in obj["rules"][0]["resourceNames"]
    )
    node = scene.cloud.client(scene.cloud.authority.issue_node("edge"))
    scene.until(lambda: node.request("GET", f"{CONFIG_MAPS}/leader-hub-{pool}").status == 200)
    assert node.request("GET", CONFIG_MAPS).status == 403

    scene.admin.delete(f"{POOLS}/{pool}")
    scene.sees(
        ROLES,
        "edgehub:leader-hubs",
        lambda obj: not obj["rules"] or f"leader-hub-{pool}" not in obj["rules"][0]["resourceNames"],
    )


def test_a_role_that_was_changed_is_put_right(scene: Scene, manager: object) -> None:
    scene.pool()
    scene.sees(ROLES, "edgehub:leader-hubs", lambda obj: obj["rules"])
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    scene.admin.patch(f"{ROLES}/edgehub:leader-hubs", {"rules": everything})
    scene.sees(ROLES, "edgehub:leader-hubs", lambda obj: obj["rules"] != everything)
