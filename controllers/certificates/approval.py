"""Decides whether a hub may have the serving certificate that it asks for. Pure.

A hub serves its pool as its node, so the request must come from that node, in the node's name, for addresses that the
Node object has, or for link-local ones of IPv4. A node writes its own addresses. So one that another node has too, or
at which the API server serves, is left to a person: the certificate would be good for serving in that one's place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from controllers.certificates.serving_request import ServingRequest, Wanted, parse_wanted
from controllers.cluster.nodes import Node
from kube.peers import NODE_PREFIX, NODES_GROUP, is_link_local, may_be_certified

SERVING = "server auth"
USAGES = frozenset({SERVING, "digital signature", "key encipherment"})
"""What the signer allows; `server auth` is required."""
LEFT = ""
"""The type of a decision that is left to a person."""
OF_API_SERVER = frozenset({"kubernetes", "kubernetes.default"})
"""The short names by which pods call the API server. The long ones have the label `svc`, as those of all Services."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The condition that the manager sets on a request: `type` is Approved, Denied, or LEFT for none."""

    type: str
    reason: str
    message: str


type OtherHolder = Callable[[str], str]
"""Who else has an address, "" for nobody. LookupError, with the reason, while that cannot be known."""


def node_of(request: ServingRequest) -> str:
    """The name of the node that sent a request, "" when no node did."""
    return request.user.removeprefix(NODE_PREFIX) if request.user.startswith(NODE_PREFIX) else ""


def decide(request: ServingRequest, node: Node | None, holder: OtherHolder) -> Decision:
    """Approve or deny a hub's request, or leave it to a person. `node` is the requester's, None where there is none."""
    try:
        wanted = parse_wanted(request.pem)
        if fault := _fault(request, wanted, node):
            return Decision("Denied", "NotTheNodes", fault)
    except ValueError as error:
        return Decision("Denied", "NotTheNodes", f"the request cannot be read: {error}")
    if doubt := _doubt(wanted, holder):
        return Decision(LEFT, "NotApproved", f"{doubt}: `kubectl certificate approve` or deny it")
    return Decision("Approved", "HubOfNode", f"the request is of the hub of node {node_of(request)}")


def _fault(request: ServingRequest, wanted: Wanted, node: Node | None) -> str:
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
    strange = sorted(name for name in (*wanted.dns, *wanted.addresses) if not _is_own(name, wanted, node))
    return f"node {node.name} has not the names {_told(strange)}" if strange else ""


def _is_own(name: str, wanted: Wanted, node: Node) -> bool:
    if name in wanted.dns:
        return name == node.name
    return may_be_certified(name, node.name) and (name in node.addresses or is_link_local(name))


def _doubt(wanted: Wanted, holder: OtherHolder) -> str:
    """Why nobody but a person can decide, "" when nothing is in doubt."""
    try:
        for name in (*wanted.dns, *wanted.addresses):
            if name in OF_API_SERVER or "svc" in name.split("."):
                return f"a Service of the cluster has the name {name}, too"
            if not is_link_local(name) and (other := holder(name)):
                return f"{other} has {name}, too"
    except LookupError as error:
        return str(error.args[0])
    return ""


def _told(values: tuple[str, ...] | list[str]) -> str:
    """Values that a stranger chose, for a message."""
    return ", ".join(f"{value!r:.80}" for value in values[:5]) or "nothing"
