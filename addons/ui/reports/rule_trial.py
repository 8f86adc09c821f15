"""The report `rules try`: the effect of an edit of the rules on each component. Nothing is applied.

The hub's own copies are filtered twice, by the rules in force and by the edit. No view is changed. A filter that needs
a new input starts its source, as it would when the edit applies.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, UserString
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import yaml

from addons.filters.filter import READS, Filter
from addons.rules.entries import ANY
from addons.rules.table import Rules, parse_rules
from addons.telemetry.labels import HUB
from addons.ui.dry_run import DryRunResult, deadline, dry_run, in_slices
from addons.ui.explain import hub_source
from addons.ui.reports.hub_reports import bound_filters, problems
from addons.ui.running_hub import RunningHub
from addons.views.source import Source
from kube.requests.continue_tokens import key_text
from kube.store.store import Item

MAX_NAMED = 50
"""Maximum named objects for each kind of change of a component and a resource; all are counted."""
MAX_REASONS = 5
"""Maximum reasons for one object; `explain` returns all of them."""

MAX_TEXT = 1024 * 1024
"""Maximum bytes of a ConfigMap."""
MAX_DEPTH = 20
"""Maximum nesting of collections. libyaml's composer is recursive, and crashes the process at a stack overflow."""
MAX_NODES = 50_000
"""Maximum keys, values and collections: parsed within a second or two."""

type Chains = tuple[tuple[Filter, ...], tuple[Filter, ...]]
"""The filters by the rules in force, and by the edit."""


@dataclass(slots=True)
class Difference:
    """The change of a component's view of one resource."""

    changes: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {kind: {"count": 0, "names": []} for kind in ("gained", "lost", "changed")}
    )
    """The number of objects by kind of change, and the first of them."""
    endpoints_before: int = 0
    endpoints_after: int = 0
    unknown: int = 0
    """Number of objects for which a filter lacks an input."""
    seen: int = 0

    def compare(
        self, item: Item, before: Item | None, after: Item | None, explained: Callable[[Item], DryRunResult]
    ) -> None:
        """Count and name an object whose filtered form changes. `explained` returns the reasons for a lost or changed
        one.
        """
        same = before.raw == after.raw if before is not None and after is not None else before is after
        if same:
            return
        self.endpoints_before += endpoints_of(before)
        self.endpoints_after += endpoints_of(after)
        kind = "gained" if before is None else "lost" if after is None else "changed"
        changes, name = self.changes[kind], key_text(item.key)
        changes["count"] += 1
        if changes["count"] > MAX_NAMED:
            return
        if kind == "gained":
            changes["names"].append(name)
            return
        reasons = [str(note) for note in explained(item).decisive[:MAX_REASONS]]
        ends = endpoints_of(after) - endpoints_of(before)
        changes["names"].append({"name": name, "reasons": reasons, "endpoints": ends})


async def try_text(hub: RunningHub, text: bytes) -> dict[str, Any]:
    """Run `try_rules` on a user's text. ValueError as in `read_rules`."""
    own = hub.settings.namespace, hub.settings.configmap
    return await try_rules(hub, await asyncio.to_thread(read_rules, text, own))


async def try_rules(hub: RunningHub, data: Mapping[str, str] | None) -> dict[str, Any]:
    """Return the effect of an edited ConfigMap's `data`; None if it is deleted. `lost` counts objects and endpoints.

    `untried` names resources without a copy and, if no component has sent a request yet, the components that the edit
    affects: their losses are unknown.
    """
    now = hub.rules.rules
    edited = parse_rules(data, now.bindings.disabled, now.bindings.filters)
    end = deadline()
    requests = _asked(hub)
    rows = [
        await _row(hub, of, verbs, chains, end)
        for of in requests
        for chains, verbs in _changed_chains(now, edited, *of).items()
    ]
    seen = {component for component, _, _ in requests}
    named = (now.components | edited.components) - {ANY, HUB}
    unseen = [
        {"component": name, "before": before, "after": after}
        for name in sorted(named - {row["component"] for row in rows})
        if (before := bound_filters(now, name)) != (after := bound_filters(edited, name))
    ]
    untried = sorted({f"{row['component']} {row['resource']}" for row in rows if not row["copy"]})
    return {
        "problems": problems(edited),
        "unnamedProblems": edited.problems.unnamed,
        "changes": edited.digest != now.digest,
        "components": rows,
        "unseen": unseen,
        "cached": {
            "gained": sorted(
                name for name in named | seen if name in edited.agents and name not in now.agents
            ),
            "lost": sorted(name for name in named | seen if name in now.agents and name not in edited.agents),
        },
        "lost": {
            "objects": sum(row["lost"]["count"] for row in rows),
            "endpoints": sum(max(0, -row["endpoints"]["difference"]) for row in rows),
        },
        "untried": untried or ([] if rows else [row["component"] for row in unseen]),
        "complete": time.monotonic() <= end,
    }


def _asked(hub: RunningHub) -> list[tuple[str, str, str]]:
    """Return (component, group, resource) for all reads by components of kinds that filters process."""
    requests = {
        (key.component, source.list_watch.type.group, source.list_watch.type.resource)
        for source in hub.sources
        for key in source.views
    }
    understood = {of for filter_ in hub.rules.rules.bindings.filters for of in filter_.resources}
    for name, counts in hub.records.traffic.components().items():
        for read in counts.reads:
            resource, _, group = read.partition(".")
            requests.add((name, group, resource))
    return sorted(row for row in requests if row[1:] in understood and row[0] != HUB)


def _changed_chains(
    now: Rules, edited: Rules, component: str, group: str, resource: str
) -> dict[Chains, list[str]]:
    """Return the verbs whose filters change, grouped by the change."""
    changed: dict[Chains, list[str]] = {}
    for verb in sorted(READS):
        before = now.bindings.chain(component, group, resource, verb)
        after = edited.bindings.chain(component, group, resource, verb)
        if before != after:
            changed.setdefault((before, after), []).append(verb)
    return changed


async def _row(
    hub: RunningHub, of: tuple[str, str, str], verbs: list[str], chains: Chains, end: float
) -> dict[str, Any]:
    component, group, resource = of
    name = f"{resource}.{group}" if group else resource
    source = hub_source(hub.sources, name)
    difference = Difference()
    if source is not None:
        difference = await _difference(hub, source, component, chains, end)
    before, after = ([filter_.name for filter_ in chain] for chain in chains)
    return {
        "component": component,
        "resource": name,
        "verbs": verbs,
        "before": before,
        "after": after,
        "objects": difference.seen,
        "copy": source is not None,
        **difference.changes,
        "endpoints": {
            "before": difference.endpoints_before,
            "after": difference.endpoints_after,
            "difference": difference.endpoints_after - difference.endpoints_before,
        },
        "unknown": difference.unknown,
    }


async def _difference(
    hub: RunningHub, source: Source, component: str, chains: Chains, end: float
) -> Difference:
    difference = Difference()
    scopes = [key.scope for key in source.views if key.component == component]
    explained = partial(dry_run, filters=chains[1], inputs=hub.inputs)
    async for item in in_slices(source.store, end):
        if scopes and not any(scope.matches(item) for scope in scopes):
            continue
        difference.seen += 1
        before, after = (dry_run(item, chain, hub.inputs, explains=False) for chain in chains)
        if before.is_pending or after.is_pending:
            difference.unknown += 1
            continue
        difference.compare(item, before.shown, after.shown, explained)
    return difference


def endpoints_of(item: Item | None) -> int:
    """Return the number of endpoints in a slice, or of addresses in Endpoints; 0 for other objects."""
    if item is None:
        return 0
    match item.store.kind:
        case "EndpointSlice":
            return len(item.decode().fields.children("endpoints"))
        case "Endpoints":
            return sum(
                len(subset.children("addresses")) for subset in item.decode().fields.children("subsets")
            )
    return 0


class NoText(UserString):
    """A YAML value that is not a string, as written."""


class Texts(yaml.CSafeLoader):
    """YAML loader that reads all scalars as text.

    PyYAML raises an error for an invalid date, and takes a minute for a sexagesimal number (1:1:1…) as long as a
    ConfigMap. It accepts duplicate keys, which other readers may resolve differently.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = Counter(str(key.value) for key, _ in node.value)
        if keys and keys.most_common(1)[0][1] > 1:
            raise ValueError(f"the key {keys.most_common(1)[0][0]} appears twice")
        return super().construct_mapping(node, deep)


for _tag in ("bool", "int", "float", "binary", "timestamp"):
    Texts.add_constructor(f"tag:yaml.org,2002:{_tag}", lambda _loader, node: NoText(node.value))
Texts.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in found if tag != "tag:yaml.org,2002:timestamp"]
    for first, found in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def read_rules(text: bytes, own: tuple[str, str]) -> dict[str, str] | None:
    """Parse the data of the ConfigMap in a text of one or more documents; None without data.

    ValueError, with a message for the user, if the text is not a ConfigMap, or one of another namespace or name than
    `own`. The longest text takes some seconds, so run this in a thread.
    """
    if len(text) > MAX_TEXT:
        raise ValueError(f"the text is longer than {MAX_TEXT} bytes")
    try:
        _check_size(text)
        documents = [document for document in yaml.load_all(text, Loader=Texts) if document is not None]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"the text is not valid YAML: {' '.join(str(error).split())}") from None
    configmaps = [
        document
        for document in documents
        if isinstance(document, dict) and document.get("kind") == "ConfigMap"
    ]
    if len(configmaps) > 1:
        raise ValueError("the text has more than one ConfigMap")
    if configmaps:
        _check_name(configmaps[0].get("metadata"), own)
        return _data(configmaps[0].get("data"))
    if len(documents) == 1 and isinstance(documents[0], dict) and "kind" not in documents[0]:
        # The entries may be below `data:`, as in a ConfigMap: entries themselves are never mappings.
        inner = documents[0].get("data")
        return _data(inner if isinstance(inner, dict) and len(documents[0]) == 1 else documents[0])
    if not documents:
        return None
    raise ValueError("the text has no ConfigMap: give one, or its data alone")


def _check_size(text: bytes) -> None:
    """Raise ValueError for a text that is too costly to parse. Only its events are read here."""
    depth = 0
    for nodes, event in enumerate(yaml.parse(text, Loader=yaml.CSafeLoader)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("the text has a YAML alias (*name): write its value out")
        if depth > MAX_DEPTH or nodes > MAX_NODES:
            raise ValueError(
                f"the text has more than {MAX_NODES} nodes, or is nested deeper than {MAX_DEPTH} levels"
            )


def _check_name(metadata: Any, own: tuple[str, str]) -> None:
    """Raise ValueError for another ConfigMap's metadata; missing fields are not checked."""
    given = metadata if isinstance(metadata, dict) else {}
    found = given.get("namespace") or own[0], given.get("name") or own[1]
    if found != own:
        raise ValueError(
            f"the text is ConfigMap {'/'.join(map(str, found))}, and the rules are {'/'.join(own)}"
        )


def _data(configmap: Any) -> dict[str, str] | None:
    if configmap is None:
        return None
    if not isinstance(configmap, dict):
        raise ValueError("data must be a mapping of strings")
    for key, value in configmap.items():
        if not isinstance(key, str) or not isinstance(value, str):
            shown = (str(value) if isinstance(value, NoText) else json.dumps(value, default=str))[:40]
            raise ValueError(f"data.{key} must be a string, not {shown}: put it in quotation marks")
    return configmap
