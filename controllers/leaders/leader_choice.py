"""Chooses the leader hubs of a pool by OpenYurt's rules. Pure; the caller passes the random choice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime

from controllers.cluster.node_pools import MARK, Leader, NodePool, with_condition
from controllers.cluster.nodes import Node
from controllers.runtime.unstructured import timestamp
from kube.json_type import Json
from kube.peers import CLOSED, MAX_HUBS, PEER_ANNOTATION

LEADER_READY = "LeaderReady"
"""OpenYurt's condition."""

EDGE_WORKER = "openyurt.io/is-edge-worker"
"""The label, "true", of a node that joined by OpenYurt's tools: a YurtHub runs there, which announces nothing."""

type Choose = Callable[[list[Leader], int], list[Leader]]
"""Picks a number of the candidates: `random.sample`."""


def leader_candidates(pool: NodePool, nodes: Iterable[Node]) -> list[Leader]:
    """The nodes that may lead: Ready, with an address, not being deleted, for `mark` with all labels of the selector.

    Their hubs must announce that they can lead. In a pool where no hub does, the nodes with a YurtHub may lead.
    An empty selector marks no node: the schema refuses it.
    """
    nodes = list(nodes)
    announced = any(map(_announces, nodes))
    return sorted(
        Leader(node.name, node.address)
        for node in nodes
        if node.ready
        and node.address
        and not node.deleting
        and (_announces(node) if announced else _has_yurthub(node))
        and (pool.strategy != MARK or _marked(pool, node))
    )


def serving_hubs(nodes: Iterable[Node]) -> list[Leader]:
    """The nodes whose hubs serve their pool, whether they are heard now or not, and no more than hubs take.

    Of nodes that name the same address none is there: a kubelet writes the addresses of its own Node.
    """
    serving = [node for node in nodes if node.address and not node.deleting and _announces(node)]
    claims = Counter(node.address for node in serving)
    return sorted(Leader(node.name, node.address) for node in serving if claims[node.address] == 1)[:MAX_HUBS]


def elect(pool: NodePool, nodes: Iterable[Node], choose: Choose) -> tuple[Leader, ...]:
    """The leaders that the pool shall have. A leader that is still a candidate at the same address stays leader."""
    if not pool.elects:
        return ()
    candidates = leader_candidates(pool, nodes)
    stay = [leader for leader in dict.fromkeys(pool.leaders) if leader in candidates][: pool.replicas]
    others = [candidate for candidate in candidates if candidate not in stay]
    missing = min(pool.replicas - len(stay), len(others))
    return (*stay, *choose(others, missing)) if missing else tuple(stay)


def leader_status(pool: NodePool, leaders: tuple[Leader, ...], now: datetime) -> Json:
    """The status fields that must change, as a merge patch of the status; {} when none must."""
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
    """A hub of ours that cannot serve says so."""
    return node.labels.get(EDGE_WORKER) == "true" and PEER_ANNOTATION not in node.annotations


def _marked(pool: NodePool, node: Node) -> bool:
    return bool(pool.selector) and pool.selector.items() <= node.labels.items()


def _condition(pool: NodePool, leaders: tuple[Leader, ...]) -> Json | None:
    """The LeaderReady condition, None for a pool without election."""
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
