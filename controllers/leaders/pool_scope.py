"""What hubs are told of their pool, and what they may read because of it: a ConfigMap and two roles. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from controllers.cluster.node_pools import Pool
from kube.json_type import Json

CONFIG_LABEL = "openyurt.io/configmap-name"
"""The label by which hubs select the ConfigMap; its value is the ConfigMap's name."""
POOL_SCOPE_ROLE = "edgehub:pool-scope"
LEADER_HUBS_ROLE = "edgehub:leader-hubs"
"""Bound to nodes by the manifests of the hub."""
LONGEST_LABEL = 63
"""Characters of a label's value."""


def config_name(pool: str) -> str:
    return f"leader-hub-{pool}"


def leader_config(pool: Pool, namespace: str) -> Json:
    """The ConfigMap for a pool's hubs; keys and formats are OpenYurt's, so that its hubs read it too."""
    name = config_name(pool.name)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "namespace": namespace,
            "name": name,
            # A pool's longest name is longer than what is left of a label here: such a pool is found by name only.
            "labels": {CONFIG_LABEL: name} if len(name) <= LONGEST_LABEL else {},
            "ownerReferences": [pool.owner],
        },
        "data": {
            "leaders": ",".join(f"{each.node}/{each.address}" for each in sorted(pool.leaders)),
            "pool-scoped-metadata": ",".join(map(str, sorted(pool.shared))),
            "interconnectivity": "true" if pool.interconnected else "false",
            "enable-leader-election": "true" if pool.elects else "false",
        },
    }


def pool_scope_role(pools: Iterable[Pool]) -> Json:
    """The ClusterRole of hubs: list and watch on all that some pool shares."""
    by_group: dict[str, set[str]] = {}
    for pool in pools:
        for shared in pool.shared:
            by_group.setdefault(shared.group, set()).add(shared.resource)
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": POOL_SCOPE_ROLE},
        "rules": [
            {"apiGroups": [group], "resources": sorted(resources), "verbs": ["list", "watch"]}
            for group, resources in sorted(by_group.items())
        ],
    }


def leader_hubs_role(pools: Iterable[Pool], namespace: str) -> Json:
    """The Role of hubs: the ConfigMaps of all pools, by name. A hub of one pool may read those of others."""
    names = sorted(config_name(pool.name) for pool in pools)
    rule = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": names,
        "verbs": ["get", "list", "watch"],
    }
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": LEADER_HUBS_ROLE, "namespace": namespace},
        # Without names the rule would mean all ConfigMaps.
        "rules": [rule] if names else [],
    }


def differs(live: Json | None, intended: Json) -> bool:
    """Whether an object lacks something of what is intended. Labels and owners of others do not matter."""
    if live is None:
        return True
    meta, wanted = live.get("metadata", {}), intended["metadata"]
    labels = meta.get("labels") or {}
    owners = {each.get("uid") for each in meta.get("ownerReferences") or []}
    return (
        any(labels.get(key) != value for key, value in wanted.get("labels", {}).items())
        or any(each["uid"] not in owners for each in wanted.get("ownerReferences", []))
        or any((live.get(part) or type(intended[part])()) != intended[part] for part in _parts(intended))
    )


def _parts(intended: Json) -> list[str]:
    return [part for part in ("data", "rules") if part in intended]
