"""Relays: hubs beside the kube-apiservers that serve what pools share to every node of the cluster."""

from __future__ import annotations

from addons.pool.pool_config import LeaderHub, PoolConfig
from addons.upstream.servers import Server
from addons.views.serving import SHARED
from kube.requests.request_info import ResourceType

VERSION = "v1"
"""Of all kinds that a relay serves."""


def hub_of(relay: Server) -> LeaderHub:
    """A relay as the hub keeps the state of leaders."""
    return LeaderHub(relay.node, relay.host)


class EveryNode(frozenset[str]):
    """The members of a relay's pool: whoever has the client certificate of a node."""

    def __contains__(self, node: object) -> bool:
        return True

    def __bool__(self) -> bool:
        return True


def relay_config(node: str) -> PoolConfig:
    """The pool of a relay, which leads it, whoever the nodes are: it shares all that a pool may share."""
    scope = tuple(ResourceType(group, VERSION, resource) for group, resource in SHARED)
    return PoolConfig((LeaderHub(node, ""),), scope, is_shared=True)
