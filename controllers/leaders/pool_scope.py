"""Builds the ConfigMap that describes a pool to its hubs, and the Role by which hubs may read it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from controllers.cluster.node_pools import MARK, Leader, NodePool
from kube.json_type import Json

CONFIG_LABEL = "openyurt.io/configmap-name"
"""The label by which hubs select the ConfigMap. The value is the ConfigMap's name."""
LEADER_HUBS_ROLE = "edgehub:leader-hubs"
"""`hub-rbac.yaml` binds it to all nodes."""
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "edgehub-manager"
"""The label and value by which the manager finds its ConfigMaps again, whatever the length of their names."""
LONGEST_LABEL = 63
"""Characters that a label's value may have."""


def config_name(pool: str) -> str:
    return f"leader-hub-{pool}"


def leader_config(pool: NodePool, hubs: Iterable[Leader], namespace: str) -> Json:
    """The ConfigMap for a pool's hubs. Keys and formats are OpenYurt's, so that its hubs can read it too.

    `hubs` are those that serve the pool: without a cloud they find each other by it.
    """
    name = config_name(pool.name)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "namespace": namespace,
            "name": name,
            # A pool name of more than 52 characters makes the value too long: hubs find that ConfigMap by its name.
            "labels": {MANAGED_BY: MANAGER, **({CONFIG_LABEL: name} if len(name) <= LONGEST_LABEL else {})},
            "ownerReferences": [pool.reference.owner],
        },
        "data": {
            "leaders": _joined(sorted(pool.leaders)),
            "pool-scoped-metadata": ",".join(map(str, sorted(pool.pool_scope))),
            "interconnectivity": "true" if pool.interconnected else "false",
            "enable-leader-election": "true" if pool.elects else "false",
            **({"hubs": _joined(hubs)} if pool.elects else {}),
            **({"relay": pool.relay} if pool.relay else {}),
            # Where an administrator marks the nodes that may lead, no other node serves the pool.
            **({"deputies": "false"} if pool.strategy == MARK else {}),
        },
    }


def _joined(hubs: Iterable[Leader]) -> str:
    return ",".join(f"{hub.node}/{hub.address}" for hub in hubs)


def leader_hubs_role(pools: Iterable[NodePool], namespace: str) -> Json:
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
        # A rule without resourceNames would grant all ConfigMaps.
        "rules": [rule] if names else [],
    }


def differs(live: Json | None, intended: Json) -> bool:
    """Whether the live object lacks a part of the intended one. Labels and owners that others added do not count."""
    if live is None:
        return True
    meta, wanted = live.get("metadata", {}), intended["metadata"]
    labels = meta.get("labels") or {}
    owners = {owner_reference.get("uid") for owner_reference in meta.get("ownerReferences") or []}
    return (
        any(labels.get(key) != value for key, value in wanted.get("labels", {}).items())
        or any(owner_reference["uid"] not in owners for owner_reference in wanted.get("ownerReferences", []))
        or any((live.get(part) or type(intended[part])()) != intended[part] for part in _parts(intended))
    )


def _parts(intended: Json) -> list[str]:
    return [part for part in ("data", "rules") if part in intended]
