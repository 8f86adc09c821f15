"""Controllers that elect the leader hubs of a pool by OpenYurt's rules, publish them, and grant hubs their rights."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from controllers.cluster.kinds import NODES, Node, pools_of_changed
from controllers.cluster.node_pools import MARK, NODEPOOLS, NodePool, with_condition
from controllers.runtime.controller import Context, Controller, own_key
from controllers.runtime.informer import ObjectSelection, WatchedResource, one_object, without_managed_fields
from controllers.runtime.unstructured import timestamp
from kube.json_type import Json
from kube.peers import CLOSED, MAX_HUBS, PEER_ANNOTATION, LeaderHub
from kube.requests.request_info import ResourceType
from kube.store.store import Key

LEADER_READY = "LeaderReady"
"""OpenYurt's condition of a NodePool."""

EDGE_WORKER = "openyurt.io/is-edge-worker"
"""The label, with value "true", of a node that OpenYurt's tools joined: its YurtHub announces no capabilities."""

type Choose = Callable[[list[LeaderHub], int], list[LeaderHub]]
"""Picks a number of the candidates: `random.sample`."""


def leader_candidates(pool: NodePool, nodes: Iterable[Node]) -> list[LeaderHub]:
    """Return the nodes that may lead: Ready, with an address, not being deleted, and for `mark` with all labels of the
    selector.

    Their hubs must announce that they can lead. In a pool without such a hub, the nodes with a YurtHub may lead. An
    empty selector marks no node: the schema refuses it.
    """
    nodes = list(nodes)
    announced = any(map(_announces, nodes))
    return sorted(
        LeaderHub(node.name, node.address)
        for node in nodes
        if node.ready
        and node.address
        and not node.deleting
        and (_announces(node) if announced else _has_yurthub(node))
        and (pool.strategy != MARK or _marked(pool, node))
    )


def serving_hubs(nodes: Iterable[Node]) -> list[LeaderHub]:
    """Return the nodes whose hubs serve their pool, Ready or not, up to the number that hubs accept.

    Nodes with the same address are all omitted: a kubelet writes the addresses of its own Node, so one may lie.
    """
    serving = [node for node in nodes if node.address and not node.deleting and _announces(node)]
    claims = Counter(node.address for node in serving)
    return sorted(LeaderHub(node.name, node.address) for node in serving if claims[node.address] == 1)[
        :MAX_HUBS
    ]


def elect(pool: NodePool, nodes: Iterable[Node], choose: Choose) -> tuple[LeaderHub, ...]:
    """Return the new leaders of a pool. A leader that is still a candidate at the same address stays leader."""
    if not pool.elects:
        return ()
    candidates = leader_candidates(pool, nodes)
    stay = [leader for leader in dict.fromkeys(pool.leaders) if leader in candidates][: pool.replicas]
    others = [candidate for candidate in candidates if candidate not in stay]
    missing = min(pool.replicas - len(stay), len(others))
    return (*stay, *choose(others, missing)) if missing else tuple(stay)


def leader_status(pool: NodePool, leaders: tuple[LeaderHub, ...], now: datetime) -> Json:
    """Return the merge patch of the status fields that must change; {} if there are none."""
    changed: Json = {}
    if leaders != pool.leaders:
        changed["leaderEndpoints"] = [
            {"nodeName": leader.node, "address": leader.address} for leader in leaders
        ] or None
        changed["leaderLastElectedTime"] = timestamp(now)
    if len(leaders) != pool.leader_count:
        changed["leaderNum"] = len(leaders)
    conditions = with_condition(pool.conditions, LEADER_READY, _condition(pool, leaders), now)
    if conditions != list(pool.conditions):
        changed["conditions"] = conditions
    return changed


def _announces(node: Node) -> bool:
    return node.annotations.get(PEER_ANNOTATION, "") not in ("", CLOSED)


def _has_yurthub(node: Node) -> bool:
    """Whether a node has a YurtHub, rather than a hub of ours that announces that it cannot lead."""
    return node.labels.get(EDGE_WORKER) == "true" and PEER_ANNOTATION not in node.annotations


def _marked(pool: NodePool, node: Node) -> bool:
    return bool(pool.selector) and pool.selector.items() <= node.labels.items()


def _condition(pool: NodePool, leaders: tuple[LeaderHub, ...]) -> Json | None:
    """Return the LeaderReady condition, None for a pool without election."""
    if not pool.elects:
        return None
    if leaders:
        status, reason = "True", "LeaderElected"
        message = f"{len(leaders)} of {pool.replicas} leaders elected"
    else:
        marked = ", matches leaderNodeLabelSelector" if pool.strategy == MARK else ""
        status, reason = "False", "NoCandidate"
        able = f"a hub that can lead ({PEER_ANNOTATION})"
        message = f"no node of the pool is Ready, has an internal IP{marked} and {able}"
    return {"status": status, "observedGeneration": pool.generation, "reason": reason, "message": message}


CONFIG_LABEL = "openyurt.io/configmap-name"
"""The label by which hubs select the ConfigMap; its value is the ConfigMap's name."""
LEADER_HUBS_ROLE = "edgehub:leader-hubs"
"""The Role of hubs; `hub-rbac.yaml` binds it to all nodes."""
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "edgehub-manager"
"""The label, and its value, by which the manager finds its ConfigMaps, even those with long names."""
LONGEST_LABEL = 63
"""Characters of a label's value."""


def config_name(pool: str) -> str:
    return f"leader-hub-{pool}"


def leader_config(pool: NodePool, hubs: Iterable[LeaderHub], namespace: str) -> Json:
    """Return the ConfigMap for a pool's hubs. Keys and formats are OpenYurt's, so that YurtHub can read it too.

    `hubs` are the hubs that serve the pool: they find each other by it while the cloud is away.
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
            # If an administrator marks the nodes that may lead, no other node serves the pool.
            **({"deputies": "false"} if pool.strategy == MARK else {}),
        },
    }


def _joined(hubs: Iterable[LeaderHub]) -> str:
    return ",".join(f"{hub.node}/{hub.address}" for hub in hubs)


def leader_hubs_role(pools: Iterable[NodePool], namespace: str) -> Json:
    """Return the Role that lets hubs read the ConfigMaps of all pools, by name. A hub of one pool may read those of
    others."""
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
    """Whether the live object lacks a part of the intended one. Labels and owners of other clients are ignored."""
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


class HubLeaderController(Controller):
    """Elects the leaders of pools. Key: a pool.

    The controller watches nodes instead of the counts in the status, because no count changes if one node fails while
    another becomes ready.
    """

    name = "hubleader"
    debounce = 0.1
    """Seconds. Nodes that fail together are handled together, so that no failed node replaces another as leader."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._pools = self.watch(NODEPOOLS, own_key)
        self._nodes = self.watch(NODES, pools_of)

    async def reconcile(self, key: Key) -> None:
        pool = self._pools.get(key)
        if pool is None:
            return
        nodes = [node for _, node in self._nodes.by_index("pool", pool.name)]
        leaders = elect(pool, nodes, random.sample)
        status = leader_status(pool, leaders, datetime.now(UTC))
        if not status:
            return
        # The resourceVersion prevents a second election, by another manager or by one that has not seen its own write.
        patch = {"metadata": {"resourceVersion": pool.version}, "status": status}
        await self.patch(self._pools, key, patch, "status")
        if leaders != pool.leaders:
            names = ", ".join(leader.node for leader in leaders) or "none"
            await self._context.events.normal(pool.reference, "LeadersElected", f"leader hubs: {names}")


def _eligibility(node: Node) -> object:
    """Return the facts of a node that decide whether it may lead."""
    announced = node.annotations.get(PEER_ANNOTATION)
    return node.ready, node.address, node.deleting, node.labels, announced


pools_of = pools_of_changed(_eligibility)


CONFIG_MAPS = ResourceType("", "v1", "configmaps")
ROLES = ResourceType("rbac.authorization.k8s.io", "v1", "roles")


class HubLeaderConfigController(Controller):
    """Writes the ConfigMap with a pool's leaders. Key: a pool. Garbage collection deletes the ConfigMap of a deleted
    pool."""

    name = "hubleaderconfig"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._namespace = context.settings.namespace
        self._pools = self.watch(NODEPOOLS, own_key)
        self._nodes = self.watch(NODES, pools_of_hub)
        self._configs = self.watch(config_maps(self._namespace), pool_of)

    async def reconcile(self, key: Key) -> None:
        pool = self._pools.get(key)
        if pool is None:
            return
        nodes = (node for _, node in self._nodes.by_index("pool", pool.name))
        intended = leader_config(pool, serving_hubs(nodes), self._namespace)
        if differs(self._configs.get((self._namespace, config_name(pool.name))), intended):
            await self.apply(self._configs, intended)


pools_of_hub = pools_of_changed(lambda node: serving_hubs([node]))


def config_maps(namespace: str) -> WatchedResource[Json]:
    """Describe the watch of the manager's own ConfigMaps in a namespace."""
    return WatchedResource(
        CONFIG_MAPS, without_managed_fields, selection=ObjectSelection(namespace, f"{MANAGED_BY}={MANAGER}")
    )


def pool_of(key: Key, old: Json | None, new: Json | None) -> Iterable[Key]:
    """Return the pool whose ConfigMap has this name."""
    prefix = config_name("")
    return [("", key[1].removeprefix(prefix))] if key[1].startswith(prefix) and old != new else []


class HubLeaderRbacController(Controller):
    """Maintains the Role that lets hubs read leader ConfigMaps. Key: the Role.

    A manifest, not this controller, grants hubs the right to read shared resources.
    """

    name = "hubleaderrbac"
    workers = 1
    debounce = 0.5
    """Seconds. Each change of a role makes every API server rebuild its rules."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._namespace = context.settings.namespace
        self._key = (self._namespace, LEADER_HUBS_ROLE)
        self._pools = self.watch(NODEPOOLS, self._when_pools_come_or_go)
        self._roles = self.watch(
            one_object(ROLES, *self._key, without_managed_fields), self._when_the_role_changes
        )

    async def reconcile(self, key: Key) -> None:
        live = self._roles.get(key)
        intended = leader_hubs_role((pool for _, pool in self._pools.items()), self._namespace)
        if live is None and not intended["rules"]:
            return  # no rule is wanted and no role exists
        if differs(live, intended):
            await self.apply(self._roles, intended)

    def _when_pools_come_or_go(self, _key: Key, old: NodePool | None, new: NodePool | None) -> Iterable[Key]:
        return [self._key] if old is None or new is None else []

    def _when_the_role_changes(self, _key: Key, old: Json | None, new: Json | None) -> Iterable[Key]:
        return [self._key] if old != new else []
