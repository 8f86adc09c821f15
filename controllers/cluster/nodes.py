"""The facts that controllers read from a Node."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from controllers.runtime.informer import WatchedResource
from controllers.runtime.unstructured import mapping, metadata, objects, text, texts
from kube.bounds import reached
from kube.json_type import Json
from kube.requests.node_pools import POOL_LABEL
from kube.requests.request_info import ResourceType

MAX_ADDRESSES = 100
"""Addresses of a Node that count. A kubelet writes one or two of its own Node; 30,000 are half a second to read."""


@dataclass(frozen=True, slots=True)
class Node:
    """The facts of a node. A heartbeat leaves them equal, so it causes no reconcile."""

    name: str
    uid: str = ""
    pool: str = ""
    ready: bool = False
    unheard_since: str = ""
    """Since when the node lifecycle controller has not heard it, as the condition Ready has it; "" while it has."""
    autonomy: tuple[str, str, str] = ("", "", "")
    """Status, reason and message of the condition Autonomy."""
    address: str = ""
    """Its first InternalIP in canonical form, "" without a valid one."""
    addresses: frozenset[str] = frozenset()
    """Its IP addresses in canonical form."""
    deleting: bool = False
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    taints: tuple[Json, ...] = ()
    version: str = field(default="", compare=False)


def read_node(obj: Json) -> Node:
    meta, status = metadata(obj), mapping(obj.get("status"))
    labels = texts(meta.get("labels"))
    conditions = {text(condition.get("type")): condition for condition in objects(status.get("conditions"))}
    ready, autonomy = conditions.get("Ready", {}), conditions.get("Autonomy", {})
    addresses = objects(status.get("addresses"))
    if len(addresses) > MAX_ADDRESSES:
        reached("addresses of a Node")
        del addresses[MAX_ADDRESSES:]
    internal = [address for address in addresses if address.get("type") == "InternalIP"]
    return Node(
        name=text(meta.get("name")),
        uid=text(meta.get("uid")),
        pool=labels.get(POOL_LABEL, ""),
        ready=ready.get("status") == "True",
        unheard_since=text(ready.get("lastTransitionTime")) if ready.get("status") == "Unknown" else "",
        autonomy=(text(autonomy.get("status")), text(autonomy.get("reason")), text(autonomy.get("message"))),
        address=parse_address(text(internal[0].get("address"))) if internal else "",
        addresses=frozenset(
            filter(None, (parse_address(text(address.get("address"))) for address in addresses))
        ),
        deleting="deletionTimestamp" in meta,
        labels=labels,
        annotations=texts(meta.get("annotations")),
        taints=tuple(objects(mapping(obj.get("spec")).get("taints"))),
        version=text(meta.get("resourceVersion")),
    )


def parse_address(value: str) -> str:
    """An IP address in its canonical form, "" for anything else. A kubelet writes the addresses of its own Node.

    The ConfigMap of a pool joins nodes and addresses with commas and slashes. An IP address has neither. A zone, as in
    "fe80::1%zone", may have both and is refused.
    """
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return ""
    if "%" in value or address.is_unspecified or address.is_multicast:
        return ""
    return str(address)


def _transform(obj: Json) -> Json:
    # A Node object is large because it lists all images; keep only the fields that `read_node` reads.
    meta, status = metadata(obj), mapping(obj.get("status"))
    fields = ("name", "uid", "resourceVersion", "labels", "annotations", "deletionTimestamp")
    return {
        "metadata": {name: meta[name] for name in fields if name in meta},
        "spec": {"taints": mapping(obj.get("spec")).get("taints")},
        "status": {
            "addresses": objects(status.get("addresses"))[: MAX_ADDRESSES + 1],
            "conditions": [
                {
                    name: condition.get(name)
                    for name in ("type", "status", "lastTransitionTime", "reason", "message")
                }
                for condition in objects(status.get("conditions"))
                if condition.get("type") in ("Ready", "Autonomy")
            ],
        },
    }


NODES = WatchedResource(
    ResourceType("", "v1", "nodes"),
    read_node,
    transform=_transform,
    indexers={"pool": lambda node: [node.pool] if node.pool else [], "address": lambda node: node.addresses},
)
