"""The conventions of hub and manager: the form of a node's identity, and the signers of nodes' certificates."""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple

NODE_PREFIX = "system:node:"
"""The user name of a node begins with this; the node's own name follows."""
NODES_GROUP = "system:nodes"
"""The group of all nodes' users."""
PEER_ANNOTATION = "edgehub.io/peer"
"""On a Node: the port at which its hub serves the pool. On a CertificateSigningRequest, "true": a hub has sent it."""
CLOSED = "0"
"""The port of a hub that serves no pool. A node without the annotation may have a hub of another make."""
MAX_HUBS = 100
"""Hubs of a pool that report their pods to each other while the cloud is away: each has a watch open at each other."""
SERVING_SIGNER = "kubernetes.io/kubelet-serving"
"""The signer of serving certificates of nodes; kube-controller-manager signs approved requests."""
LOCALHOST = (ip_address("127.0.0.1"), ip_address("::1"))
"""Where clients of every machine call their own, such as a load balancer for the API server."""
METADATA = ip_network("169.254.169.0/24")
"""Services of clouds at link-local addresses, which machines do ask over the network."""
LONGEST_NODE_NAME = 253
"""Characters of a node's name."""

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NODE_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")


def is_node_name(name: str) -> bool:
    """Whether kube-apiserver takes a name for a Node: a DNS subdomain of RFC 1123.

    ConfigMaps of pools and headers of the peer port join the names of nodes with commas and slashes. No node's name
    has either.
    """
    return len(name) <= LONGEST_NODE_NAME and _NODE_NAME.fullmatch(name) is not None


class LeaderHub(NamedTuple):
    """A node whose hub reads for its pool, or serves it, and the IP address at which the other hubs reach it."""

    node: str
    address: str


def parse_leader_hub(entry: str) -> LeaderHub:
    """The hub of `NODE/ADDRESS`; ValueError otherwise. Names stand in the log and in metrics' labels."""
    node, _, address = entry.strip().partition("/")
    try:
        hub = LeaderHub(node, str(parse_hub_address(address)))
    except ValueError:
        hub = LeaderHub("", "")
    if not is_node_name(hub.node):
        raise ValueError(f"leader {entry!r} is not of the form NODE/ADDRESS")
    return hub


def parse_hub_address(text: str) -> IPv4Address | IPv6Address:
    """The IP address of a hub, as other hubs reach it; ValueError for any other text.

    The zone of an IPv6 address may hold any text, commas and line breaks too. A zone names an interface of one machine,
    so it means nothing to another.
    """
    address = ip_address(text)
    if "%" in text:
        raise ValueError(f"{text!r} has a zone")
    return address


def is_link_local(name: str) -> bool:
    """Whether a name is an address that leads only to the node itself, such as the hub's for pods (RFC 3927).

    The cluster certifies these for a hub beside the Node's own addresses, and no others. Link-local addresses of IPv6
    are neighbours on a network.
    """
    try:
        address = ip_address(name)
    except ValueError:
        return False
    return address.version == 4 and address.is_link_local and address not in METADATA


def may_be_certified(name: str, node: str) -> bool:
    """Whether a hub asks for a name that its Node has, and the manager approves it: the node's name, or an address.

    A kubelet writes its Node freely. An IPv4 address in the form of IPv6 is left out, because clients take both forms
    for the same.
    """
    try:
        address = ip_address(name)
    except ValueError:
        return name == node
    if address.is_link_local:
        return is_link_local(name)
    return not (
        address in LOCALHOST
        or address.is_multicast
        or address.is_unspecified
        or (address.version == 6 and address.ipv4_mapped is not None)
    )
