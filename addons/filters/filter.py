"""What a filter is."""

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
    """A filter is complete when constructed, holds no state and never raises for an odd object: it keeps it
    and says why. Filters with the same settings are equal."""

    @property
    def name(self) -> str:
        """The name in the rules ConfigMap, for example "servicetopology"."""

    @property
    def resources(self) -> frozenset[GroupResource]:
        """The resources that it understands."""

    @property
    def components(self) -> frozenset[str]:
        """The components that it is bound to without any ConfigMap."""

    @property
    def verbs(self) -> frozenset[str]:
        """The verbs that a rule without verbs means."""

    @property
    def reasons(self) -> frozenset[str]:
        """Every reason that a verdict of it can carry, so that each can be counted from zero."""

    def apply(self, obj: ApiObject, inputs: Inputs, note: Note = ignore_note) -> Verdict:
        """Decides about one object and, when CHANGED, has written to it in place."""
