"""The network of an instance: a bridge at the cloud, a veth to each node, and faults that disconnect a node.

Nodes reach each other over the bridge even when they are cut from the cloud. The network is invisible outside the
instance.
"""

from __future__ import annotations

import contextlib
from enum import StrEnum

from scripts.node_machine.commands import FailedError
from scripts.node_machine.instances import CLOUD, Instance
from scripts.node_machine.machine import Machine

CLOUD_ADDRESS = "10.77.0.1"
POD_RANGE = "10.244.0.0/16"
BRIDGE = "nodes"


class Cut(StrEnum):
    """How a node is disconnected from its cloud."""

    HOLE = "hole"
    """Packets are lost, both ways."""
    REFUSE = "refuse"
    """Connections are reset, new ones refused."""
    DOWN = "down"
    """The node's link has no carrier, so its neighbours are unreachable, too."""


RULES = {
    Cut.HOLE: ("drop",),
    Cut.REFUSE: ("meta l4proto tcp reject with tcp reset", "drop"),
}


def number(node: str) -> int:
    """Return the number in a node's name, such as `edge-1`."""
    return int(node.rpartition("-")[2])


def address(node: str) -> str:
    """Return the IP address of a node."""
    return f"10.77.0.{10 + number(node)}"


def pods(node: str) -> str:
    """Return the address range of a node's pods."""
    return f"10.244.{number(node)}.0/24"


def table(node: str) -> str:
    """Return the name of the nft table, on the cloud's machine, that cuts off a node."""
    return f"cut-{node}"


def rules(node: str, cut: Cut) -> str:
    """Return the nft table that cuts off a node, one statement a line."""
    lines = [f"table ip {table(node)} {{"]
    for hook, direction in (("input", "saddr"), ("output", "daddr")):
        lines += [f"chain {hook} {{", f"type filter hook {hook} priority -10"]
        lines += [f"ip {direction} {{ {address(node)}, {pods(node)} }} {verdict}" for verdict in RULES[cut]]
        lines.append("}")
    return "\n".join([*lines, "}", ""])


def lay_cloud(cloud: Machine) -> None:
    """Set up the bridge, with the cloud's address."""
    _ip(cloud, "link set lo up")
    _ip(cloud, f"link add {BRIDGE} type bridge")
    _ip(cloud, f"addr add {CLOUD_ADDRESS}/24 dev {BRIDGE}")
    _ip(cloud, f"link set {BRIDGE} up")
    _forward(cloud)


def lay_node(cloud: Machine, node: Machine, *, carrier: bool = True) -> None:
    """Connect a node with new namespaces to the cloud, and add routes to its pods everywhere."""
    name = node.name
    with contextlib.suppress(FailedError):
        # The link of the previous boot may still exist for a moment.
        _ip(cloud, f"link del {name}")
    _ip(cloud, f"link add {name} type veth peer name eth0 netns {node.pid}")
    _ip(cloud, f"link set {name} master {BRIDGE}")
    for each in ("lo", "eth0"):
        _ip(node, f"link set {each} up")
    _ip(node, f"addr add {address(name)}/24 dev eth0")
    _ip(node, f"route add default via {CLOUD_ADDRESS}")
    _forward(node)
    if carrier:
        _ip(cloud, f"link set {name} up")
    _ip(cloud, f"route replace {pods(name)} via {address(name)}")
    for other in cloud.instance.nodes:
        if other != name and cloud.instance.pid(other):
            _ip(node, f"route replace {pods(other)} via {address(other)}")
            _ip(Machine(cloud.instance, other), f"route replace {pods(name)} via {address(name)}")


def cut_of(cloud: Machine, node: str) -> Cut | None:
    """Return the fault that cuts a node off now; None without one."""
    try:
        return Cut((cloud.folder / f"cut-{node}").read_text())
    except FileNotFoundError:
        return None


def cut(cloud: Machine, node: str, how: Cut) -> None:
    """Cut a node off from its cloud; it stays cut off over reboots."""
    heal(cloud, node)
    if how is Cut.DOWN:
        _ip(cloud, f"link set {node} down")
    else:
        cloud.run("nft", "-f", "-", stdin=rules(node, how))
    (cloud.folder / f"cut-{node}").write_text(how)


def heal(cloud: Machine, node: str) -> None:
    """Remove the fault that cuts a node off."""
    was = cut_of(cloud, node)
    if was is Cut.DOWN:
        _ip(cloud, f"link set {node} up")
    elif was:
        cloud.run("nft", "delete", "table", "ip", table(node))
    (cloud.folder / f"cut-{node}").unlink(missing_ok=True)


def cloud_of(instance: Instance) -> Machine:
    return Machine(instance, CLOUD)


def _ip(machine: Machine, arguments: str) -> None:
    machine.in_network("ip", *arguments.split())


def _forward(machine: Machine) -> None:
    machine.in_network("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
