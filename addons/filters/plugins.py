"""Filters from other packages: their declaration, and their position among the built-in ones."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from addons.filters.chain import build_filters
from addons.filters.filter import READS, Filter, GroupResource
from addons.filters.inputs import Inputs
from addons.filters.verdict import Note, Verdict, ignore_note
from kube.requests.component import component_named
from kube.wire.api_objects import ApiObject
from kube.wire.encoding import Encoding

MAX_PLUGINS = 32
"""Filters from other packages: each runs for each object that it is bound to."""
MAX_REASONS = 64
"""Reasons of one such filter; each is a label of a metric."""

ANY = "*"
"""Stands for every component, as in an entry of the rules."""
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+")
"""The pattern of such a filter's name. The hyphen distinguishes it from the built-in filters of this release and all
later ones."""
_LONGEST_NAME = 63
_REASON = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


def is_plugin_name(name: str) -> bool:
    """True for a name that only another package's filter can have: parts of a-z and 0-9, joined by hyphens."""
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class FilterPlugin:
    """A filter from another package, checked against its declaration. Two are equal if their names and digests are.

    `digest` identifies the code. It is in the repr, and so in the digest of the rules: a client can resume a watch
    after a restart only if the same code filters.
    """

    name: str
    digest: str
    after: tuple[str, ...]
    before: tuple[str, ...]
    resources: frozenset[GroupResource] = field(repr=False, compare=False)
    components: frozenset[str] = field(repr=False, compare=False)
    verbs: frozenset[str] = field(repr=False, compare=False)
    reasons: frozenset[str] = field(repr=False, compare=False)
    protobuf: bool = field(repr=False, compare=False)
    """Whether the hub's protobuf schema has all fields that the filter reads; if not, it gets only JSON."""
    code: Filter = field(repr=False, compare=False)

    def apply(self, obj: ApiObject, inputs: Inputs, note: Note = ignore_note) -> Verdict:
        """Call the plugin's code.

        ValueError, which hides the object, for a result that is no verdict or has an undeclared reason.
        """
        if obj.encoding is Encoding.PROTOBUF and not self.protobuf:
            raise ValueError(f"{self.name} supports only JSON")
        verdict: object = self.code.apply(obj, inputs, note)
        if not isinstance(verdict, Verdict) or verdict.reason not in self.reasons:
            raise ValueError(
                f"{self.name} answered {verdict!r}, which is not a verdict with one of its reasons"
            )
        return verdict


def plugin_of(code: object, digest: str) -> FilterPlugin:
    """Return a filter from another package. `after` and `before`, names of other filters, and `protobuf` are optional.

    ValueError with a message for its author if the declaration is incomplete.
    """
    name = getattr(code, "name", None)
    if not isinstance(name, str) or not is_plugin_name(name):
        raise ValueError(
            f"{code!r} needs a name of lower case letters and digits with a hyphen, as in acme-canary, not {name!r}"
        )
    resources = getattr(code, "resources", None)
    if not isinstance(resources, frozenset) or not resources or not all(map(_is_resource, resources)):
        raise ValueError(f"{name}.resources must be a frozenset of pairs (group, resource)")
    components, verbs, reasons = (
        _texts(code, name, attribute) for attribute in ("components", "verbs", "reasons")
    )
    if not all(component == ANY or component_named(component) == component for component in components):
        raise ValueError(f"{name}.components must be component names in lower case, or '{ANY}'")
    if not verbs or not verbs <= READS:
        raise ValueError(f"{name}.verbs must be one or more of {', '.join(sorted(READS))}")
    if not reasons or len(reasons) > MAX_REASONS or not all(map(_REASON.fullmatch, reasons)):
        raise ValueError(
            f"{name}.reasons is 1 to {MAX_REASONS} words of lower case letters, digits and hyphens"
        )
    if not callable(getattr(code, "apply", None)):
        raise ValueError(f"{name} has no method apply")
    after, before = (_names(code, name, attribute) for attribute in ("after", "before"))
    protobuf = getattr(code, "protobuf", False)
    if not isinstance(protobuf, bool):
        raise ValueError(f"{name}.protobuf must be True or False")
    return FilterPlugin(
        *(name, digest, after, before, resources),
        *(components, verbs, reasons, protobuf),
        code,  # type: ignore[arg-type]  # it has what Filter asks for
    )


def need_json(filters: Iterable[Filter]) -> bool:
    """Whether one of these filters may read a field that the hub's protobuf schema lacks."""
    return any(isinstance(filter_, FilterPlugin) and not filter_.protobuf for filter_ in filters)


def in_order(own: Sequence[Filter], added: Iterable[FilterPlugin]) -> tuple[Filter, ...]:
    """Return the built-in filters in their order, with each added one at its declared position, or last without one.

    ValueError if two have one name, one names a neighbour that no hub has, or the positions contradict each other.
    """
    plugins = list(added)
    if len(plugins) > MAX_PLUGINS:
        raise ValueError(f"{len(plugins)} filters are more than {MAX_PLUGINS}")
    filters: dict[str, Filter] = {}
    for filter_ in (*own, *plugins):
        if filter_.name in filters:
            raise ValueError(f"two filters are called {filter_.name}")
        filters[filter_.name] = filter_
    ordered = _sorted(_earlier(own, plugins), plugins)
    return tuple(filters[name] for name in ordered)


def _earlier(own: Sequence[Filter], plugins: Sequence[FilterPlugin]) -> dict[str, set[str]]:
    """Return, by name, the filters that must precede each one."""
    earlier: dict[str, set[str]] = {filter_.name: set() for filter_ in (*own, *plugins)}
    for former, latter in itertools.pairwise(own):
        earlier[latter.name].add(former.name)
    # Some of the hub's own filters exist only on some hubs; a position relative to a missing one has no effect.
    somewhere = {filter_.name for filter_ in build_filters(health=True)}
    for plugin in plugins:
        for name in (*plugin.after, *plugin.before):
            if name not in earlier and name not in somewhere:
                raise ValueError(f"{plugin.name} is ordered by {name!r}, and there is no such filter")
        earlier[plugin.name].update(name for name in plugin.after if name in earlier)
        for name in plugin.before:
            if name in earlier:
                earlier[name].add(plugin.name)
    return earlier


def _sorted(earlier: Mapping[str, Collection[str]], plugins: Iterable[FilterPlugin]) -> list[str]:
    """Sort the names: each follows its predecessors, otherwise the order of `earlier` applies."""
    ordered: dict[str, None] = {}
    while len(ordered) < len(earlier):
        following = next(
            (name for name in earlier if name not in ordered and ordered.keys() >= {*earlier[name]}), None
        )
        if following is None:
            names = ", ".join(plugin.name for plugin in plugins if plugin.name not in ordered)
            raise ValueError(f"no order has all of {names} before and after the filters that they name")
        ordered[following] = None
    return list(ordered)


def _texts(code: object, name: str, attribute: str) -> frozenset[str]:
    texts = getattr(code, attribute, None)
    if not isinstance(texts, frozenset) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{name}.{attribute} must be a frozenset of strings")
    return texts


def _names(code: object, name: str, attribute: str) -> tuple[str, ...]:
    names = getattr(code, attribute, ())
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{name}.{attribute} must be a tuple of filter names")
    return names


def _is_resource(pair: object) -> bool:
    return isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(part, str) for part in pair)
