"""Bundles what a view needs to filter objects: filter chains, the rules in force, and the versions that clients may
hold from views under other rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from addons.filters.filter import Filter
from addons.rules.issued_versions import IssuedVersions
from addons.rules.table import Rules
from kube.requests.request_info import ResourceType
from kube.store.projection import Chain

ChainOf = Callable[[tuple[Filter, ...], str], Chain | None]
"""Returns the chain of some filters, for objects of a resource (a metric's label); None without filters."""


class Filtering(NamedTuple):
    """The filters of a hub, which all its sources share."""

    chain_of: ChainOf
    rules: Callable[[], Rules]
    """The rules in force."""
    given: IssuedVersions
    """The versions that clients got under other rules, also from an earlier process."""

    def issued_under_other_rules(self, type_: ResourceType) -> int:
        """Return the newest version of a resource that a client may hold from a view under other rules, or from another
        history."""
        former = self.given.of_former(type_.group_resource)
        if not self.rules().bindings.could_filter(type_.group, type_.resource, "watch"):
            return former
        return max(former, self.given.of_other_rules(type_.group_resource))
