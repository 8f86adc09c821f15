"""Which nodes' hubs lead a pool, by the rules of document 003. Pure but for the choice among equals, which is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from controllers.cluster.node_pools import MARK, Leader, Pool, timestamp, with_condition
from controllers.cluster.nodes import Node
from kube.json_type import Json

LEADER_READY = "LeaderReady"
"""The condition of document 003."""

type Choose = Callable[[list[Leader], int], list[Leader]]
"""Some of the candidates, as many as asked for: `random.sample`."""


def fit_leaders(pool: Pool, nodes: Iterable[Node]) -> list[Leader]:
    """The nodes that may lead: Ready, reachable, staying, and for `mark` with all labels of the selector.

    An empty selector marks no node: the schema refuses it.
    """
    return sorted(
        Leader(node.name, node.address)
        for node in nodes
        if node.ready
        and node.address
        and not node.deleting
        and (pool.strategy != MARK or _marked(pool, node))
    )


def elect(pool: Pool, nodes: Iterable[Node], choose: Choose) -> tuple[Leader, ...]:
    """The leaders that the pool is to have. One that is still fit, at the same address, stays."""
    if not pool.elects:
        return ()
    candidates = fit_leaders(pool, nodes)
    stay = [each for each in dict.fromkeys(pool.leaders) if each in candidates][: pool.replicas]
    others = [each for each in candidates if each not in stay]
    missing = min(pool.replicas - len(stay), len(others))
    return (*stay, *choose(others, missing)) if missing else tuple(stay)


def leader_status(pool: Pool, leaders: tuple[Leader, ...], now: datetime) -> Json:
    """The fields of the status that differ, as a merge patch of it; {} when none does."""
    changed: Json = {}
    if leaders != pool.leaders:
        changed["leaderEndpoints"] = [
            {"nodeName": each.node, "address": each.address} for each in leaders
        ] or None
        changed["leaderLastElectedTime"] = timestamp(now)
    if len(leaders) != pool.leader_count:
        changed["leaderNum"] = len(leaders)
    conditions = with_condition(pool.conditions, LEADER_READY, _condition(pool, leaders), now)
    if conditions != list(pool.conditions):
        changed["conditions"] = conditions
    return changed


def _marked(pool: Pool, node: Node) -> bool:
    return bool(pool.selector) and pool.selector.items() <= node.labels.items()


def _condition(pool: Pool, leaders: tuple[Leader, ...]) -> Json | None:
    """None where there is no election: a condition about it would say nothing."""
    if not pool.elects:
        return None
    if leaders:
        status, reason = "True", "LeaderElected"
        message = f"{len(leaders)} of {pool.replicas} leaders elected"
    else:
        marked = " and matches leaderNodeLabelSelector" if pool.strategy == MARK else ""
        status, reason = "False", "NoCandidate"
        message = f"no node of the pool is Ready, has an internal IP{marked}"
    return {
        "status": status,
        "observedGeneration": pool.generation,
        "reason": reason,
        "message": message,
    }
