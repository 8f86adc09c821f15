"""Explains why a component sees an object as it does: the route, the rules, and what each filter decided."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from addons.filters.chain import FILTERS, apply_chain
from addons.filters.filter import Filter
from addons.filters.verdict import Note as FilterNote
from addons.filters.verdict import Outcome
from addons.inputs.filter_inputs import FilterInputs
from addons.pool.peer_reader import PeerReader
from addons.requests.caller import Caller, Lending, Listener
from addons.requests.route_decision import decide
from addons.rules.table import Rules
from addons.ui.resource_names import COMMON_RESOURCES, nearest, plural_of
from addons.views.source import Source
from addons.views.sources import Sources
from kube.errors import StatusError
from kube.reflector.state import State
from kube.requests.component import component_of
from kube.requests.request_info import ResourceType, parse_request
from kube.store.store import Item
from kube.wire.encoding import Encoding


class ExplainRequest(NamedTuple):
    """What a person asks: why a component sees one object so or, without a name, a whole resource.

    `resource` has its group behind a dot (`endpointslices.discovery.k8s.io`), or is one that the hub reads, or a short
    name. Without a `namespace` the hub looks for the object in all of them.
    """

    component: str
    resource: str
    namespace: str = ""
    name: str = ""
    verb: str = "list"


@dataclass(frozen=True, slots=True)
class Note:
    """One decision of one filter."""

    filter: str
    subject: str
    outcome: str
    reason: str

    def __str__(self) -> str:
        return f"{self.filter}: {self.subject} {self.outcome}: {self.reason}"


@dataclass(slots=True)
class Explanation:
    """What `explain` found; JSON for tools, `text` for people."""

    component: str
    path: str
    verb: str
    route: str = ""
    reason: str = ""
    rules: list[str] = field(default_factory=list)
    filters: list[str] = field(default_factory=list)
    outcome: str = ""
    origin: str = ""
    """Where the hub's object comes from: the cloud, a leader, a relay, or the copy on disk."""
    notes: list[Note] = field(default_factory=list)
    problem: str = ""
    hints: list[str] = field(default_factory=list)
    """Names that the hub does not know, each with the nearest one that it knows."""

    @property
    def text(self) -> str:
        lines = [f"{self.component or '(unnamed component)'} {self.verb} {self.path}"]
        if self.route:
            lines.append(f"route: {self.route} ({self.reason})")
        lines += [f"rule: {rule}" for rule in self.rules]
        lines += [f"filter: {name}" for name in self.filters]
        lines += [f"  {note}" for note in self.notes]
        if self.outcome:
            lines.append(f"object: {self.outcome}")
        if self.origin:
            lines.append(f"from: {self.origin}")
        if self.problem:
            lines.append(f"note: {self.problem}")
        lines += [f"note: {hint}" for hint in self.hints]
        return "\n".join(lines) + "\n"


def explain(rules: Rules, sources: Sources, inputs: FilterInputs, question: ExplainRequest) -> Explanation:
    """What such a request from the plaintext port would get, or, with a name, what it would see of one object."""
    component, resource, namespace, name, verb = question
    resource = plural_of(resource)
    source = hub_source(sources, resource)
    others: list[str] = []
    if name and not namespace and source is not None:
        namespace, *others = sorted(item.key[0] for item in source.store if item.key[1] == name) or [""]
    kind = source.list_watch.type if source is not None else _type(resource)
    path = kind.path(namespace, name if verb == "get" else "")
    told = Explanation(component_of(component), path, verb, hints=_hints(rules, sources, component, resource))
    if others:
        told.hints.append(f"this is the one in {namespace}; there are others in {', '.join(others)}")
    target = f"{path}?watch=true&resourceVersion=0" if verb == "watch" else f"{path}?resourceVersion=0"
    try:
        info = parse_request("GET", target)
        asks = info, told.component, Caller(Lending.HUB), Listener.PLAIN, Encoding.JSON
        route = decide(*asks, rules, is_upgrade=False)
    except StatusError as error:
        told.problem = f"refused with {error.code}: {error.message}"
        return told
    told.route, told.reason = route.kind, route.reason
    told.filters = list(route.filtered_by)
    if info.type is not None:
        told.rules = rules.explain(told.component, info.type.group, info.type.resource, verb)
    if name:
        filters = rules.chain(told.component, kind.group, kind.resource, verb)
        _explain_object(told, source, inputs, (namespace, name), filters)
    return told


def _hints(rules: Rules, sources: Sources, component: str, resource: str) -> list[str]:
    """The names that may be misspelt. Both may also be right: anybody may name a client or a CRD freely."""
    hints = unknown_component(rules, sources, component), unknown_resource(sources, resource)
    return [hint for hint in hints if hint]


def unknown_component(rules: Rules, sources: Sources, component: str) -> str:
    """Why nothing is filtered for a component: the hub has never heard of it; "" for one that it knows."""
    name = component_of(component)
    components = rules.components | {key.component for source in sources for key in source.views}
    if name in components:
        return ""
    return f"no rule names the component {name!r}, and it has no view{nearest(name, components)}"


def unknown_resource(sources: Sources, resource: str) -> str:
    """Why nothing can be said of a resource: the hub has never heard of it; "" for one that it knows."""
    plural = plural_of(resource).partition(".")[0]
    resources = {source.list_watch.type.resource for source in sources} | COMMON_RESOURCES
    return "" if plural in resources else f"the hub reads no resource {plural!r}{nearest(plural, resources)}"


def _explain_object(
    told: Explanation,
    source: Source | None,
    inputs: FilterInputs,
    key: tuple[str, str],
    filters: tuple[Filter, ...],
) -> None:
    item = source.store.get(key) if source is not None else None
    if source is None or item is None:
        told.problem = (
            "the hub has no copy of this object: nobody asked for its kind yet, or it does not exist"
        )
        return
    told.origin = _origin(source)
    try:
        told.outcome, told.notes, pending = judge(item, filters, inputs)
    except Exception as error:
        told.outcome, told.problem = Outcome.DROPPED, f"it cannot be filtered and is hidden: {error}"
        return
    if pending:
        told.problem = "an input of the filters is not known yet; ask again"


def _origin(source: Source) -> str:
    """Where the objects of a source come from now."""
    if source.reflector.state is not State.WATCHING:
        return "the hub's own copy, for no server is watched now"
    reader = source.reflector.upstream
    server = reader.leader if isinstance(reader, PeerReader) else None
    if server is None:
        return "the cloud"
    return f"{server.name}, which has had no cloud for {server.age:g} s" if server.age else server.name


def judge(item: Item, filters: tuple[Filter, ...], inputs: FilterInputs) -> tuple[Outcome, list[Note], bool]:
    """What filters make of one object now, with every decision they took, and whether an input was missing."""
    notes: list[Note] = []
    outcome = Outcome.KEPT
    obj, recorded = item.decode(), inputs.ask()
    for filter_ in filters:
        verdict = apply_chain((filter_,), obj, recorded, _noting(filter_.name, notes))
        notes += [Note(name, "object", step.outcome, step.reason) for name, step in verdict.steps]
        if verdict.outcome is not Outcome.KEPT:
            outcome = verdict.outcome
        if outcome is Outcome.DROPPED:
            break
    return outcome, notes, recorded.pending


def _noting(name: str, notes: list[Note]) -> FilterNote:
    def note(subject: str, outcome: Outcome, reason: str) -> None:
        notes.append(Note(name, subject, outcome, reason))

    return note


def _type(resource: str) -> ResourceType:
    """A type by its plural, where the hub reads none of that name: one that filters know, or a core one."""
    plural, _, group = resource.partition(".")
    known = {name: of for filter_ in FILTERS for of, name in filter_.resources}
    return ResourceType(group or known.get(plural, ""), "v1", plural)


def hub_source(sources: Sources, resource: str) -> Source | None:
    """The most complete of the hub's own copies of a resource: of whole objects, and the one with the most.

    A source of a caller's own token is left out: nobody else may learn what it holds, nor that an object is there.
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
