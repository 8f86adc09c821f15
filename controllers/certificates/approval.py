"""Decides whether a hub may have the serving certificate that it asks for. Pure.

A hub serves its pool as its node, so the request must come from that node, in the node's name, for addresses that the
Node object has, or for link-local ones. A node writes its own addresses, so none of them may be another's of the same
pool: the certificate would be good for serving in that node's place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from controllers.certificates.serving_request import ServingRequest, Wanted, parse_wanted
from controllers.cluster.nodes import Node
from kube.peers import NODE_PREFIX, NODES_GROUP, is_of_link

SERVING = "server auth"
USAGES = frozenset({SERVING, "digital signature", "key encipherment"})
"""What the signer allows; `server auth` is required."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The condition that the manager sets on a request: `type` is Approved or Denied."""

    type: str
    reason: str
    message: str


def node_of(request: ServingRequest) -> str:
    """The name of the node that sent a request, "" when no node did."""
    return request.user.removeprefix(NODE_PREFIX) if request.user.startswith(NODE_PREFIX) else ""


def decide(request: ServingRequest, node: Node | None, others: Iterable[Node] = ()) -> Decision:
    """Approve or deny a hub's request. `node` is the requester's, None where there is none; `others` its pool's."""
    try:
        fault = _fault(request, parse_wanted(request.pem), node, others)
    except ValueError as error:
        fault = f"the request cannot be read: {error}"
    if fault:
        return Decision("Denied", "NotTheNodes", fault)
    return Decision("Approved", "HubOfNode", f"the request is of the hub of node {node_of(request)}")


def _fault(request: ServingRequest, wanted: Wanted, node: Node | None, others: Iterable[Node]) -> str:
    """Why the request is denied, "" when nothing speaks against it."""
    if not node_of(request) or NODES_GROUP not in request.groups:
        return f"the requester {request.user} is no node"
    if wanted.common_names != (request.user,):
        return f"the common name is {_told(wanted.common_names)} and the requester {request.user}"
    if wanted.organisations != (NODES_GROUP,) or wanted.has_more_subject:
        return f"the subject must have the organisation {NODES_GROUP} and a common name, and nothing else"
    if SERVING not in request.usages or request.usages - USAGES:
        allowed = _told(sorted(USAGES))
        return f"the usages are {_told(sorted(request.usages))}: {SERVING} is needed, and {allowed} allowed"
    if node is None or node.deleting:
        return f"there is no node {node_of(request)}, or it is being deleted"
    if wanted.has_other_names or not (wanted.dns or wanted.addresses):
        return "the names must be DNS names and IP addresses, and at least one of them"
    names = {*wanted.dns, *wanted.addresses}
    strange = sorted(each for each in names - node.addresses - {node.name} if not is_of_link(each))
    if strange:
        return f"node {node.name} has not the names {_told(strange)}"
    for other in others:
        if other.name != node.name and (shared := names & {*other.addresses, other.name}):
            return f"node {other.name} of the same pool has the names {_told(sorted(shared))}, too"
    return ""


def _told(values: tuple[str, ...] | list[str]) -> str:
    """Values that a stranger chose, for a message."""
    return ", ".join(f"{each!r:.80}" for each in values[:5]) or "nothing"
