"""Decides which changes need a trigger, and for which endpoints, by OpenYurt's rules. Pure."""

from __future__ import annotations

from controllers.cluster.node_pools import NodePool
from controllers.cluster.services import Service


def topology_changed(old: Service | None, new: Service | None) -> bool:
    """Whether the topology annotation of an existing Service was added, removed or changed."""
    return old is not None and new is not None and old.topology != new.topology


def affected_nodes(old: NodePool | None, new: NodePool | None) -> frozenset[str]:
    """The nodes whose endpoints a change of a pool concerns; none when the pool's nodes are the same.

    All old and all new nodes of the pool: a node that joins begins to see the endpoints of the others, and a node that
    leaves ceases to. The first count of a new pool is such a change too, because hubs have seen the pool without nodes.
    """
    before = frozenset(old.nodes) if old is not None else frozenset()
    after = frozenset(new.nodes) if new is not None else frozenset()
    return frozenset() if before == after else before | after
