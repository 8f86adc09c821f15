"""Conventions that hub and manager share: how a node is identified, and who signs nodes' certificates."""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple

NODE_PREFIX = "system:node:"
"""The prefix of a node's user name; the node's name follows."""
NODES_GROUP = "system:nodes"
"""The group of all nodes' users."""
PEER_ANNOTATION = "edgehub.io/peer"
"""On a Node: the port at which its hub serves the pool. On a CertificateSigningRequest: "true" if a hub has sent
it."""
CLOSED = "0"
"""The port of a hub that serves no pool. A node without the annotation may run another vendor's hub."""
MAX_HUBS = 100
"""The most hubs of a pool that watch each other's pod reports while the cloud is away: each watches all others."""
SERVING_SIGNER = "kubernetes.io/kubelet-serving"
"""The signer of serving certificates of nodes; kube-controller-manager signs approved requests."""
LOCALHOST = (ip_address("127.0.0.1"), ip_address("::1"))
"""Loopback addresses, at which clients on any machine reach their own, such as a load balancer for the API server."""
METADATA = ip_network("169.254.169.0/24")
"""Link-local metadata services of cloud providers, which machines reach over the network."""
LONGEST_NODE_NAME = 253
"""The most characters of a node's name."""

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NODE_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")


def is_node_name(name: str) -> bool:
    """True if kube-apiserver accepts the name for a Node: a DNS subdomain of RFC 1123.

    ConfigMaps of pools and headers of the peer port join node names with commas and slashes, which no valid name
    contains.
    """
    return len(name) <= LONGEST_NODE_NAME and _NODE_NAME.fullmatch(name) is not None


class LeaderHub(NamedTuple):
    """A node whose hub is a leader of its pool, or a relay for it, and the IP address for the other hubs."""

    node: str
    address: str


def parse_leader_hub(entry: str) -> LeaderHub:
    """Parse `NODE/ADDRESS`; ValueError otherwise. The names are used in logs and metric labels."""
    node, _, address = entry.strip().partition("/")
    try:
        hub = LeaderHub(node, str(parse_hub_address(address)))
    except ValueError:
        hub = LeaderHub("", "")
    if not is_node_name(hub.node):
        raise ValueError(f"leader {entry!r} is not of the form NODE/ADDRESS")
    return hub


def parse_hub_address(text: str) -> IPv4Address | IPv6Address:
    """Parse the IP address at which other hubs reach a hub; ValueError for any other text.

    IPv6 zones are refused: a zone may hold any text, commas and line breaks too, and names an interface of one machine
    only.
    """
    address = ip_address(text)
    if "%" in text:
        raise ValueError(f"{text!r} has a zone")
    return address


def is_link_local(name: str) -> bool:
    """True if a name is an address that leads only to the node itself, such as the hub's address for pods (RFC 3927).

    The cluster certifies these for a hub in addition to the Node's own addresses, and no others. IPv6 link-local
    addresses are excluded, because they reach neighbours on the network.
    """
    try:
        address = ip_address(name)
    except ValueError:
        return False
    return address.version == 4 and address.is_link_local and address not in METADATA


def may_be_certified(name: str, node: str) -> bool:
    """True if a hub may request, and the manager approve, a certificate for a name of its Node: the node's name, or an
    address.

    A kubelet can write any address to its Node. IPv4-mapped IPv6 addresses are refused, because clients treat both
    forms as equal.
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
