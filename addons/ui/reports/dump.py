"""The report `dump`: the hub's copy of a resource as YAML, or a component's view of it. Secrets are masked."""

from __future__ import annotations

from addons.filters.filter import Filter
from addons.ui.dry_run import deadline, dry_run, in_slices
from addons.ui.explain import hub_source, nearest, unknown_component, unknown_resource
from addons.ui.masking import Tree, Visible
from addons.ui.readable import as_yaml, item_tree
from addons.ui.running_hub import RunningHub
from kube.errors import StatusError
from kube.requests.component import component_of
from kube.store.store import Item

MAX_DUMPED = 500
"""Maximum objects in a dump; others are counted."""
MAX_DUMP_BYTES = 8 * 1024 * 1024
"""Bytes of YAML after which further objects are only counted."""
SECRETS = ("secrets", "")
"""Resource and group whose values are always masked."""


async def dump(hub: RunningHub, resource: str, namespace: str, name: str, component: str) -> str:
    """Return YAML documents; an empty `component` returns the unfiltered copy. StatusError 404 without a copy."""
    source = hub_source(hub.sources, resource)
    if source is None or not source.store.complete:
        problem = unknown_resource(hub.sources, resource) or f"the hub keeps no copy of {resource!r}"
        raise StatusError(404, "NotFound", problem)
    type_ = source.list_watch.type
    filters: tuple[Filter, ...] = ()
    if component:
        filters = hub.rules.rules.bindings.chain(component_of(component), type_.group, type_.resource, "list")
    visible = Visible(managed_fields=hub.settings.show_managed_fields)
    documents: list[str] = []
    names: set[str] = set()
    size = left = 0
    async for item in in_slices(source.store, deadline()):
        names.add(item.key[1])
        if (namespace and item.key[0] != namespace) or (name and item.key[1] != name):
            continue
        made = dry_run(item, filters, hub.inputs, explains=False).shown
        if made is None:
            continue
        if len(documents) >= MAX_DUMPED or size >= MAX_DUMP_BYTES:
            left += 1
            continue
        documents.append(_yaml(made, visible, is_secret=(type_.resource, type_.group) == SECRETS))
        size += len(documents[-1])
    hint = unknown_component(hub, component) if component else ""
    if name and not documents:
        sees = f", or hides it from {component}: see `edgehub explain`" if name in names and component else ""
        problem = f"the hub has no {type_.resource} of this name{sees or nearest(name, names)}"
        raise StatusError(404, "NotFound", problem)
    if left:
        documents.append(f"# and {left} more: name a namespace or an object\n")
    return (f"# {hint}\n" if hint else "") + "---\n".join(documents)


def _yaml(item: Item, visible: Visible, *, is_secret: bool) -> str:
    try:
        tree = item_tree(item, visible)
    except ValueError as error:
        return f"# {item.key[0]}/{item.key[1]} cannot be shown: {error}\n"
    return as_yaml(_without_values(tree) if is_secret else tree)


def _without_values(secret: Tree) -> Tree:
    """Return a Secret's type, name and keys. Annotations are dropped, because they may contain the values."""
    metadata, data = secret.get("metadata"), secret.get("data")
    named = ("namespace", "name", "resourceVersion")
    return {
        "apiVersion": secret.get("apiVersion"),
        "kind": secret.get("kind"),
        "metadata": {field: metadata.get(field) for field in named} if isinstance(metadata, dict) else {},
        "type": secret.get("type", ""),
        "data": dict.fromkeys(data, "(hidden)") if isinstance(data, dict) else {},
    }
