"""The report `dump`: the hub's own copy of a resource as YAML, or what a component sees of it. Secrets are masked."""

from __future__ import annotations

from typing import Any

import orjson

from addons.filters.filter import Filter
from addons.ui.explain import hub_source
from addons.ui.readable import readable_body
from addons.ui.reports.evaluation import deadline, in_slices, shown
from addons.ui.reports.running_hub import RunningHub
from kube.errors import StatusError
from kube.requests.component import component_of
from kube.store.store import Item
from kube.wire.encoding import Encoding
from kube.wire.json_fields import parse_object

MAX_DUMPED = 500
"""Objects that are written out; the others are counted."""
MAX_DUMP_BYTES = 8 * 1024 * 1024
"""Bytes of YAML."""
SECRETS = ("secrets", "")
"""The group and resource whose values are always masked."""


async def dump(hub: RunningHub, resource: str, namespace: str, name: str, component: str) -> str:
    """YAML documents; `component` "" for the copy as it is. StatusError 404 where the hub keeps no such copy."""
    source = hub_source(hub.sources, resource)
    if source is None or not source.store.complete:
        raise StatusError(404, "NotFound", f"the hub keeps no copy of {resource!r}")
    type_ = source.list_watch.type
    filters: tuple[Filter, ...] = ()
    if component:
        filters = hub.rules.rules.chain(component_of(component), type_.group, type_.resource, "list")
    documents: list[str] = []
    size = left = 0
    async for item in in_slices(source.store, deadline()):
        if (namespace and item.key[0] != namespace) or (name and item.key[1] != name):
            continue
        made = shown(item, filters, hub.inputs).item
        if made is None:
            continue
        if len(documents) >= MAX_DUMPED or size >= MAX_DUMP_BYTES:
            left += 1
            continue
        documents.append(_yaml(made, is_secret=(type_.resource, type_.group) == SECRETS))
        size += len(documents[-1])
    if left:
        documents.append(f"# and {left} more: name a namespace or an object\n")
    return "---\n".join(documents)


def _yaml(item: Item, *, is_secret: bool) -> str:
    store = item.store
    if is_secret:
        return _without_values(item)
    try:
        body = store.codec.encode_single(store.api_version, store.kind, item.raw)
        return readable_body(store.codec.encoding, body)
    except ValueError as error:
        return f"# {item.key[0]}/{item.key[1]} cannot be shown: {error}\n"


def _without_values(item: Item) -> str:
    """A Secret's name, type and keys. Of one in protobuf the keys stay hidden, too."""
    tree: dict[str, Any] = {
        "apiVersion": item.store.api_version,
        "kind": item.store.kind,
        "metadata": {"namespace": item.key[0], "name": item.key[1], "resourceVersion": str(item.version)},
    }
    if item.store.codec.encoding is Encoding.JSON:
        found = parse_object(item.raw)
        tree["type"] = found.get("type", "")
        data = found.get("data")
        tree["data"] = dict.fromkeys(data, "(hidden)") if isinstance(data, dict) else {}
    return readable_body(Encoding.JSON, orjson.dumps(tree))
