"""Parses an entry of the rules ConfigMap: `component/resource#verb;verb`, for the filter that its key names."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from typing import NamedTuple

from addons.filters.filter import READS, Filter, GroupResource
from addons.filters.plugins import FilterPlugin
from kube.requests.component import component_named

ANY = "*"
"""Stands for every component, or for every resource that the filter understands."""
LEASE = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
"""The pattern of a namespace and a name; the policy of `addons.rules.admission_policy` uses the same."""


FILTER_PREFIX = "filter_"
"""The prefix of a filter's key in the older format."""
TYPO_DISTANCE = 2
"""Number of adjacent characters in which a key may differ from the name that its author meant."""
_ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def near_name(key: str, names: Iterable[str]) -> str:
    """Return the first of these names that a key nearly equals; "" if there is none.

    `addons.rules.admission_policy` does the same in CEL. A key with a hyphen may name an added filter, so there only
    different separators count as a near miss.
    """
    bare = key.removeprefix(FILTER_PREFIX).translate(_ASCII_LOWER)
    return next((name for name in names if _is_near(bare, name)), "")


def _is_near(bare: str, name: str) -> bool:
    if _squeezed(bare) == _squeezed(name):
        return True
    return (
        "-" not in bare
        and abs(len(bare) - len(name)) <= TYPO_DISTANCE
        and any(
            bare.startswith(name[:at]) and bare.endswith(name[at + TYPO_DISTANCE :])
            for at in range(len(name))
        )
    )


def _squeezed(name: str) -> str:
    return name.replace("-", "").replace("_", "")


class RuleEntry(NamedTuple):
    """A binding of a filter to requests, or an exclusion. `written_in` names its origin, for messages."""

    excludes: bool
    component: str
    resources: frozenset[GroupResource]
    verbs: frozenset[str]
    written_in: str

    def covers(self, resource: GroupResource, verb: str) -> bool:
        return resource in self.resources and verb in self.verbs


def built_in(filter_: Filter, component: str) -> RuleEntry:
    """Return the default binding of a filter, built-in or an operator's."""
    written_in = "the filter itself" if isinstance(filter_, FilterPlugin) else "built-in"
    return RuleEntry(False, component, filter_.resources, filter_.verbs, written_in)


def split_entries(value: str) -> list[str]:
    """Split a value into its entries. Blank ones are ignored, so a comma may end the list."""
    return [entry for entry in map(str.strip, value.split(",")) if entry]


def takes_away(text: str) -> bool:
    """Whether an entry begins with the `-` of an exclusion; ValueError if a blank follows, because the author of a YAML
    list with one item means the component."""
    if text.startswith("-") and text[1:2].isspace():
        raise ValueError(
            "this is an item of a YAML list, as text: write the component alone to bind it, -component to exclude it"
        )
    return text.startswith("-")


def parse_entry(filter_: Filter, text: str, written_in: str) -> RuleEntry:
    """Parse `component[/resource[#verb;verb]]`, or an exclusion with a leading `-`.

    A binding without a resource means all that the filter understands, one without verbs the filter's own verbs; an
    exclusion without them excludes every resource, every verb. ValueError describes the fault of the entry.
    """
    excludes = takes_away(text)
    binding, has_verbs, verbs = text.removeprefix("-").partition("#")
    component, has_resource, resource = binding.partition("/")
    if has_verbs and not has_resource:
        raise ValueError("verbs need a resource: component/resource#verb;verb")
    if component.strip() in READS and not has_resource:
        raise ValueError("this is a verb, not a component; verbs are separated by ';', entries by ','")
    return RuleEntry(
        excludes,
        parse_component(component),
        _parse_resource(filter_, resource.strip()) if has_resource else filter_.resources,
        _parse_verbs(verbs) if has_verbs else READS if excludes else filter_.verbs,
        written_in,
    )


def parse_lease(text: str) -> tuple[str, str]:
    """Parse `namespace/name`; ValueError for anything else."""
    if LEASE.fullmatch(text) is None:
        raise ValueError("a lease is namespace/name, both as Kubernetes names them")
    namespace, _, name = text.partition("/")
    return namespace, name


def parse_component(text: str) -> str:
    """Parse a component's name in the form that the hub derives from a User-Agent, or `*`; ValueError for any other
    text."""
    text = text.strip()
    if text == ANY:
        return ANY
    component = component_named(text)
    if not component:
        raise ValueError(
            "a component is 1 to 64 of the characters a-z, 0-9, '.', '_', '-', with spaces between them, or '*'"
        )
    return component


def _parse_resource(filter_: Filter, text: str) -> frozenset[GroupResource]:
    if text == ANY:
        return filter_.resources
    resources = frozenset(known for known in filter_.resources if text in spellings(*known))
    if not resources:
        understood = ", ".join(sorted(resource for _, resource in filter_.resources))
        raise ValueError(
            f"filter {filter_.name} does not understand this resource, only: {understood}, or '*'"
        )
    return resources


def spellings(group: str, resource: str) -> tuple[str, ...]:
    """Return the spellings of a resource that rules may use."""
    return (resource, f"{resource}.{group}") if group else (resource,)


def _parse_verbs(text: str) -> frozenset[str]:
    verbs = frozenset(verb for verb in map(str.strip, text.split(";")) if verb)
    if not verbs or not verbs <= READS:
        raise ValueError("verbs are one or more of get, list, watch, separated by ';'")
    return verbs
