"""Explains why a component sees an object as it does: the route, the rules, and the filters' decisions."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from typing import Any, NamedTuple

from addons.filters.chain import FILTERS
from addons.filters.filter import Filter
from addons.filters.verdict import Outcome
from addons.inputs.filter_inputs import FilterInputs
from addons.pool.peer_reader import PeerReader
from addons.requests.caller import Caller, CredentialSource, Listener
from addons.requests.route_decision import decide
from addons.ui.dry_run import Note, deadline, dry_run, in_slices
from addons.ui.running_hub import RunningHub
from addons.views.source import Source
from addons.views.sources import Sources
from kube.errors import StatusError
from kube.reflector.state import State
from kube.requests.component import component_of
from kube.requests.request_info import ResourceType, parse_request
from kube.wire.encoding import Encoding

COMMON_RESOURCES = frozenset(
    (
        *("configmaps", "csidrivers", "csinodes", "daemonsets", "deployments", "endpoints", "endpointslices"),
        *("events", "leases", "namespaces", "networkpolicies", "nodepools", "nodes", "pods"),
        *("persistentvolumeclaims", "persistentvolumes", "runtimeclasses", "secrets", "serviceaccounts"),
        *("servicecidrs", "services"),
    )
)
"""Resources that components of a node commonly read."""

_SHORT = {
    "cm": "configmaps",
    "deploy": "deployments",
    "ds": "daemonsets",
    "ep": "endpoints",
    "ev": "events",
    "netpol": "networkpolicies",
    "no": "nodes",
    "np": "nodepools",
    "ns": "namespaces",
    "po": "pods",
    "pv": "persistentvolumes",
    "pvc": "persistentvolumeclaims",
    "sa": "serviceaccounts",
    "svc": "services",
}
"""Short names of resources that are common on a node, as defined by their API groups."""
_SINGULAR = {
    **{resource.removesuffix("s"): resource for resource in COMMON_RESOURCES - {"endpoints"}},
    "networkpolicy": "networkpolicies",
    "runtimeclass": "runtimeclasses",
}
VERSION = re.compile(r"\.v\d+((alpha|beta)\d+)?(?=\.|$)")
"""The version in a resource that is typed as for kubectl: `services.v1`, `deployments.v1.apps`."""


def plural_of(resource: str) -> str:
    """Return the plural of a resource given by its short name, singular or plural.

    A group after a dot is preserved, a version before it left out.
    """
    name, dot, group = VERSION.sub("", resource).rstrip(".").partition(".")
    return f"{_SHORT.get(name) or _SINGULAR.get(name) or name}{dot}{group}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a question that suggests the known name nearest to an unknown one; "" if none is near."""
    matches = get_close_matches(name.lower(), sorted(known), n=1)
    return f": is it {matches[0]!r}?" if matches else ""


MAX_OBJECTS = 200
"""Maximum hidden and changed objects listed with reasons; all are counted."""
_AS_SHOWN = {Outcome.KEPT: "kept", Outcome.CHANGED: "changed", Outcome.DROPPED: "hidden"}


class ExplainRequest(NamedTuple):
    """A question: why a component sees one object as it does or, without a name, a complete resource.

    `resource` may have its group after a dot (`endpointslices.discovery.k8s.io`), or be a short name. Without a
    `namespace` the hub searches all of them.
    """

    component: str
    resource: str
    namespace: str = ""
    name: str = ""
    verb: str = "list"


@dataclass
class Explanation:
    """The report `explain`, which `addons.ui.reports.text` formats."""

    component: str
    path: str
    verb: str
    route: str = ""
    reason: str = ""
    rules: list[str] = field(default_factory=list)
    filters: list[str] = field(default_factory=list)
    outcome: str = ""
    origin: str = ""
    """Origin of the hub's object: the cloud, a leader, a relay, or the copy on disk."""
    notes: list[Note] = field(default_factory=list)
    problem: str = ""
    hints: list[str] = field(default_factory=list)
    """Hints about names that the hub does not know, each with the nearest known name."""


@dataclass
class ResourceExplanation(Explanation):
    """The explanation of a complete resource, with the verdict on each object of the hub's own copy."""

    counts: dict[str, int] = field(
        default_factory=lambda: {"kept": 0, "changed": 0, "hidden": 0, "unknown": 0}
    )
    objects: list[dict[str, Any]] = field(default_factory=list)
    """The first hidden or changed objects, with the reasons."""
    complete: bool = True
    """Whether all objects were examined before the deadline."""


def explain(hub: RunningHub, question: ExplainRequest) -> Explanation:
    """Explain a request through the plain port; with a name, also the verdict on that object."""
    component, resource, namespace, name, verb = question
    resource, rules = plural_of(resource), hub.rules.rules
    source = hub_source(hub.sources, resource)
    others: list[str] = []
    if name and not namespace and source is not None:
        namespace, *others = sorted(item.key[0] for item in source.store if item.key[1] == name) or [""]
    kind = source.list_watch.type if source is not None else _type(resource)
    path = kind.path(namespace, name if verb == "get" else "")
    # Only hints: an unknown name may be a new client or a new CRD.
    hints = unknown_component(hub, component), unknown_resource(hub.sources, resource)
    explanation = Explanation(component_of(component), path, verb, hints=[hint for hint in hints if hint])
    if others:
        explanation.hints.append(f"this is the one in {namespace}; there are others in {', '.join(others)}")
    target = f"{path}?watch=true&resourceVersion=0" if verb == "watch" else f"{path}?resourceVersion=0"
    try:
        info = parse_request("GET", target)
        asks = info, explanation.component, Caller(CredentialSource.HUB), Listener.PLAIN, Encoding.JSON
        route = decide(*asks, rules)
    except StatusError as error:
        explanation.problem = f"refused with {error.code}: {error.message}"
        return explanation
    explanation.route, explanation.reason = route.kind, route.reason
    explanation.filters = list(route.filtered_by)
    if info.type is not None:
        explanation.rules = rules.bindings.explain(
            explanation.component, info.type.group, info.type.resource, verb
        )
    if name:
        filters = rules.bindings.chain(explanation.component, kind.group, kind.resource, verb)
        _explain_object(explanation, source, hub.inputs, (namespace, name), filters)
    return explanation


async def explain_resource(hub: RunningHub, question: ExplainRequest) -> ResourceExplanation:
    """Explain a question without a name: the verdicts on all objects."""
    explanation, end = ResourceExplanation(**asdict(explain(hub, question))), deadline()
    source = hub_source(hub.sources, question.resource)
    if source is None or explanation.problem:
        explanation.problem = (
            explanation.problem or "the hub has no copy of this resource: no client asked for it yet"
        )
        return explanation
    type_ = source.list_watch.type
    filters = hub.rules.rules.bindings.chain(
        explanation.component, type_.group, type_.resource, question.verb
    )
    async for item in in_slices(source.store, end):
        if question.namespace and item.key[0] != question.namespace:
            continue
        result = dry_run(item, filters, hub.inputs, explains=False)
        outcome = "unknown" if result.is_pending else _AS_SHOWN[result.outcome]
        explanation.counts[outcome] += 1
        if outcome in ("hidden", "changed") and len(explanation.objects) < MAX_OBJECTS:
            reasons = dry_run(item, filters, hub.inputs).decisive
            named = {"namespace": item.key[0], "name": item.key[1]}
            explanation.objects.append({**named, "outcome": outcome, "reasons": reasons})
    explanation.complete = time.monotonic() <= end
    return explanation


def unknown_component(hub: RunningHub, component: str) -> str:
    """Return a hint if the hub does not know a component; "" if it does."""
    name = component_of(component)
    views = {key.component for source in hub.sources for key in source.views}
    components = hub.rules.rules.components | views
    if name in components:
        return ""
    return f"no rule names the component {name!r}, and it has no view{nearest(name, components)}"


def unknown_resource(sources: Sources, resource: str) -> str:
    """Return a hint if the hub does not know a resource; "" if it does."""
    plural = plural_of(resource).partition(".")[0]
    resources = {source.list_watch.type.resource for source in sources} | COMMON_RESOURCES
    return "" if plural in resources else f"the hub reads no resource {plural!r}{nearest(plural, resources)}"


def _explain_object(
    explanation: Explanation,
    source: Source | None,
    inputs: FilterInputs,
    key: tuple[str, str],
    filters: tuple[Filter, ...],
) -> None:
    item = source.store.get(key) if source is not None else None
    if source is None or item is None:
        explanation.problem = (
            "the hub has no copy of this object: no client asked for its kind yet, or it does not exist"
        )
        return
    explanation.origin = _origin(source)
    result = dry_run(item, filters, inputs)
    explanation.outcome, explanation.notes = result.outcome, list(result.notes)
    if result.failure:
        explanation.problem = f"it cannot be filtered and is hidden: {result.failure}"
    elif result.is_pending:
        explanation.problem = "an input of the filters is not known yet; ask again"


def _origin(source: Source) -> str:
    """Return the current origin of a source's objects."""
    if source.reflector.state is not State.WATCHING:
        return "the hub's own copy: no server is watched now"
    reader = source.reflector.upstream
    server = reader.peer if isinstance(reader, PeerReader) else None
    if server is None:
        return "the cloud"
    return f"{server.name}, which has had no cloud for {server.age:g} s" if server.age else server.name


def _type(resource: str) -> ResourceType:
    """Return the type for a plural that the hub does not read: one that filters process, or otherwise of the core
    group.
    """
    plural, _, group = resource.partition(".")
    known = {name: of for filter_ in FILTERS for of, name in filter_.resources}
    return ResourceType(group or known.get(plural, ""), "v1", plural)


def hub_source(sources: Sources, resource: str) -> Source | None:
    """Return the hub's most complete copy of a resource: of complete objects, with the most of them; None without one.

    Sources of callers' own tokens are excluded: only those callers may read their objects.
    """
    plural, _, group = plural_of(resource).partition(".")
    fitting = [
        source
        for source in sources
        if not source.user
        and source.list_watch.type.resource == plural
        and (not group or source.list_watch.type.group == group)
    ]

    def fits(source: Source) -> tuple[bool, int, bool]:
        # Every filter can read JSON.
        is_json = source.list_watch.encoding is Encoding.JSON
        return (not source.list_watch.metadata_only, len(source.store), is_json)

    return max(fitting, key=fits, default=None)
