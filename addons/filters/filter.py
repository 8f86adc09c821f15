"""The interface of every filter: a name, its resources and components, and a decision about one object.

The rules bind a filter to components; `addons.filters.chain` applies the bound ones in one fixed order.
"""

from __future__ import annotations

from typing import Protocol

from addons.filters.inputs import Inputs
from addons.filters.verdict import Note, Verdict, ignore_note
from kube.wire.api_objects import ApiObject

GroupResource = tuple[str, str]
"""An API group ("" = core) and a resource, without version: ("discovery.k8s.io", "endpointslices")."""

SERVICES: GroupResource = ("", "services")
ENDPOINTS: GroupResource = ("", "endpoints")
ENDPOINT_SLICES: GroupResource = ("discovery.k8s.io", "endpointslices")
CONFIG_MAPS: GroupResource = ("", "configmaps")
PODS: GroupResource = ("", "pods")

LIST_AND_WATCH = frozenset({"list", "watch"})
READS = frozenset({"get", "list", "watch"})


class Filter(Protocol):
    """A filter is complete when constructed and has no state.

    It gets only objects of its resources, and never raises for a malformed one: it keeps the object and gives the
    reason. Filters with the same settings are equal.
    """

    @property
    def name(self) -> str:
        """The name in the rules ConfigMap, for example "servicetopology"."""

    @property
    def resources(self) -> frozenset[GroupResource]:
        """The resources that the filter understands."""

    @property
    def components(self) -> frozenset[str]:
        """The components that the filter applies to without any ConfigMap."""

    @property
    def verbs(self) -> frozenset[str]:
        """The verbs that a rule without verbs means."""

    @property
    def reasons(self) -> frozenset[str]:
        """Every reason that a verdict of the filter can carry, so that metrics can count each from zero."""

    def apply(self, obj: ApiObject, inputs: Inputs, note: Note = ignore_note) -> Verdict:
        """Decide about one object. If the outcome is CHANGED, the filter has modified the object in place."""
