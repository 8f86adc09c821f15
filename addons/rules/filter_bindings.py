"""Determines which filters apply to which requests, from the filters and the entries of the rules that bind them."""

from __future__ import annotations

from collections.abc import Mapping

from addons.filters.filter import READS, Filter
from addons.rules.entries import ANY, RuleEntry
from addons.telemetry.labels import HUB


class Bindings:
    """The filters in their fixed order, with the entries that bind each."""

    def __init__(
        self,
        filters: tuple[Filter, ...],
        disabled: frozenset[str],
        entries: Mapping[str, Mapping[str, tuple[RuleEntry, ...]]],
    ) -> None:
        """`disabled` are names of filters; `entries` are by the filter's name, then by component, including `*`."""
        self.filters = filters
        self.disabled = disabled
        self.entries = entries
        self.named = frozenset(component for by_component in entries.values() for component in by_component)
        """The components that entries name, including `*`."""
        self._understood = frozenset().union(*(f.resources for f in filters if f.name not in disabled))
        self._chains: dict[tuple[str, str, str, str], tuple[Filter, ...]] = {}

    def chain(self, component: str, group: str, resource: str, verb: str) -> tuple[Filter, ...]:
        """Return the filters for a request in their fixed order. The result is cached, because every request needs
        it."""
        if component == HUB or not self.could_filter(group, resource, verb):
            return ()
        # All components that no entry names share one chain: clients invent User-Agents without end.
        request = (component if component in self.named else ANY, group, resource, verb)
        chain = self._chains.get(request)
        if chain is None:
            chain = self._chains[request] = tuple(f for f in self.filters if self._binds(f, *request))
        return chain

    def verb_of_view(self, component: str, group: str, resource: str, verb: str) -> str:
        """Return the verb of the view that answers a request.

        A component's lists and watches share a view, and its history, unless the rules filter them differently.
        """
        lists, watches = (self.chain(component, group, resource, verb) for verb in ("list", "watch"))
        return "watch" if lists == watches else verb

    def explain(self, component: str, group: str, resource: str, verb: str) -> list[str]:
        """Describe, for people, each entry that concerns a request, and its effect, filter by filter."""
        if component == HUB:
            return [f"{HUB}: the hub's own requests are never filtered"]
        lines = []
        for filter_ in self.filters:
            covering = self._covering(filter_, component, group, resource, verb)
            for entry in covering:
                deed = "taken away by" if entry.excludes else "bound by"
                lines.append(f"{filter_.name}: {deed} {entry.written_in}")
            if covering and filter_.name in self.disabled:
                lines.append(f"{filter_.name}: switched off by the hub's options")
        return lines

    @property
    def understood(self) -> frozenset[str]:
        """The resources that some ConfigMap could filter, in the form `endpointslices.discovery.k8s.io`."""
        return frozenset(f"{resource}.{group}" if group else resource for group, resource in self._understood)

    def could_filter(self, group: str, resource: str, verb: str) -> bool:
        """Whether any ConfigMap could make a filter match: such requests wait while the rules are unknown."""
        return verb in READS and (group, resource) in self._understood

    def _binds(self, filter_: Filter, component: str, group: str, resource: str, verb: str) -> bool:
        """Whether the entries bind the filter. An exclusion takes precedence over a binding."""
        covering = self._covering(filter_, component, group, resource, verb)
        return bool(covering) and filter_.name not in self.disabled and not any(e.excludes for e in covering)

    def _covering(
        self, filter_: Filter, component: str, group: str, resource: str, verb: str
    ) -> list[RuleEntry]:
        entries = self.entries[filter_.name]
        names = (component, ANY) if component != ANY else (ANY,)
        return [
            entry
            for name in names
            for entry in entries.get(name, ())
            if entry.covers((group, resource), verb)
        ]
