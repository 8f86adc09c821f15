"""A client's expected state: the cloud's objects that it follows, through the rules in force."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from addons.filters.builtin.topology import SCOPE_ANNOTATION
from addons.rules.table import parse_rules
from kube.json_type import Json
from kube.requests.node_pools import POOL_LABEL
from tests.histories.clients import Kind, State
from tests.histories.cloud import RESOURCES, Cloud, key_of

NODE = "n1"
RULES = "kube-system", "yurt-hub-cfg"


def rules_of(cloud: Cloud) -> Mapping[str, str] | None:
    """Return the data of the rules in the cloud."""
    data: Mapping[str, str] | None = cloud.objects("configmaps").get(RULES, {}).get("data")
    return data


def truth(cloud: Cloud, kind: Kind, verb: str = "watch") -> State:
    """Return the cloud's objects that a client follows, through the rules in force."""
    chain = parse_rules(rules_of(cloud)).bindings.chain(
        kind.component, RESOURCES[kind.resource].group, kind.resource, verb
    )
    filters = {each.name for each in chain}
    found = {}
    for key, obj in cloud.objects(kind.resource).items():
        shown = _filtered(cloud, obj, filters)
        if shown is not None and _selects(kind, obj):
            found[key] = kind.shown(shown)
    return found


def _filtered(cloud: Cloud, obj: Json, filters: set[str]) -> Json | None:
    if "discardcloudservice" in filters and obj["spec"].get("type") == "LoadBalancer":
        return None
    if "servicetopology" in filters:
        service = cloud.objects("services").get(("default", "web"), {"metadata": {}})
        if SCOPE_ANNOTATION in service["metadata"].get("annotations", {}):
            obj = copy.deepcopy(obj)
            obj["endpoints"] = [each for each in obj["endpoints"] if _is_near(cloud, each["nodeName"])]
    return obj


def _is_near(cloud: Cloud, node: str) -> bool:
    """True if a node is in this node's pool."""
    pools = {
        name: obj["metadata"].get("labels", {}).get(POOL_LABEL, "")
        for (_, name), obj in cloud.objects("nodes").items()
    }
    return not pools.get(NODE) or pools.get(node) == pools[NODE]


def _selects(kind: Kind, obj: Json) -> bool:
    if kind.selector.startswith("fieldSelector"):
        return key_of(obj)[1] == NODE
    return not kind.selector or obj["metadata"].get("labels", {}).get("app") == "x"
