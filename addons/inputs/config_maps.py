"""How the hub reads one ConfigMap: the rules, the leaders of its pool, the CA of client certificates."""

from __future__ import annotations

from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.wire.encoding import Encoding

CONFIG_MAPS = ResourceType("", "v1", "configmaps")


def one_config_map(namespace: str, name: str) -> ListWatch:
    """The ConfigMap of this name and no other, so that a right to read it by its name is enough."""
    selector = f"metadata.name={name}"
    return ListWatch(CONFIG_MAPS, namespace, field_selector=selector, encoding=Encoding.JSON)
