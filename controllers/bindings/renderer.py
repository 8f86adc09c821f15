"""Renders workloads with the bindings and autoscalers that the manager's informers know."""

from __future__ import annotations

from collections.abc import Iterable

from controllers.bindings.binding import Binding, items_for
from controllers.bindings.injection import Rendering, Target, read_record, render
from controllers.bindings.workloads import Autoscaler, Workload, subject_key, subjects_of
from controllers.runtime.informer import Informer
from kube.json_type import Json


class Renderer:
    """What the controller and the webhook share."""

    def __init__(self, bindings: Informer[Binding], autoscalers: Informer[Autoscaler]) -> None:
        self._bindings = bindings
        self._autoscalers = autoscalers

    @property
    def has_synced(self) -> bool:
        return self._bindings.has_synced and self._autoscalers.has_synced

    def matching(self, workload: Workload) -> list[Binding]:
        """The bindings whose items are for a workload."""
        return [each for each in self._candidates(workload) if not each.deleting and each.matches(workload)]

    def render(self, workload: Workload, obj: Json, stored: Json) -> Rendering:
        """A workload as its bindings want it, by the record of the stored object ({}: there is none)."""
        target = subject_key(workload.namespace, workload.kind, workload.name)
        autoscaled = bool(self._autoscalers.by_index("target", target))
        items = items_for(workload, self._candidates(workload))
        return render(obj, read_record(stored), items, Target(workload.pool, autoscaled))

    def _candidates(self, workload: Workload) -> Iterable[Binding]:
        for subject in subjects_of(workload):
            for _, binding in self._bindings.by_index("subject", subject):
                yield binding
