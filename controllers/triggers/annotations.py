"""Which changes hubs must be told of by a trigger, and whom they concern: the rules of document 000. Pure."""

from __future__ import annotations

from controllers.cluster.node_pools import Pool
from controllers.cluster.services import Service


def topology_changed(old: Service | None, new: Service | None) -> bool:
    """Whether a Service that was and is there got, lost or changed its topology annotation."""
    return old is not None and new is not None and old.topology != new.topology


def affected_nodes(old: Pool | None, new: Pool | None) -> frozenset[str]:
    """The nodes whose endpoints a change of a pool concerns; none when its nodes stayed the same.

    Of a deleted pool all that it had; where nodes came or went these and the unchanged ones: the latter are seen
    from a node that joined, and no longer from one that left. The first count of a pool adds nodes like any other:
    a hub that looked before has seen a pool without nodes, and looks again only when told.
    """
    before = frozenset(old.nodes) if old is not None else frozenset()
    after = frozenset(new.nodes) if new is not None else frozenset()
    return frozenset() if before == after else before | after
