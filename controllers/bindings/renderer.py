"""Renders workloads with the bindings, autoscalers and node pools that the manager's informers know."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from controllers.bindings.binding import Binding, items_of, matching
from controllers.bindings.rendering.injection import Rendering, Target, read_record, render
from controllers.bindings.workloads import Autoscaler, Workload, subject_key, subjects_of
from controllers.cluster.node_pools import NodePool
from controllers.runtime.informer import Informer
from kube.json_type import Json


class Renderer:
    """What the controller and the webhook share."""

    def __init__(
        self, bindings: Informer[Binding], autoscalers: Informer[Autoscaler], pools: Informer[NodePool]
    ) -> None:
        """`pools` may be of a kind that the API server does not serve: then selectors find no pool."""
        self._bindings = bindings
        self._autoscalers = autoscalers
        self._pools = pools

    @property
    def has_synced(self) -> bool:
        pools = self._pools.has_synced or self._pools.missing
        return self._bindings.has_synced and self._autoscalers.has_synced and pools

    def pool(self, name: str) -> NodePool | None:
        """The NodePool of a name, None where there is none."""
        return self._pools.get(("", name))

    def matching(self, workload: Workload) -> list[Binding]:
        """The bindings whose items are for a workload."""
        return matching(self._candidates(workload), workload, self.pool)

    def render(self, workload: Workload, obj: Json, stored: Json) -> Rendering:
        """A workload as its bindings want it, by the record of the stored object ({}: there is none)."""
        return self._render(workload, obj, stored, self.matching(workload))

    def admit(self, workload: Workload, incoming: Json, stored: Json) -> Rendering:
        """What the webhook makes of a workload that somebody writes.

        A binding can make a workload invalid, and the API server would refuse the write of somebody who never heard of
        the binding. So a binding that is refused somewhere, and patches that no workload has yet, are left to the
        controller, unless the stored workload has them.
        """
        bindings = self.matching(workload)
        safe = [
            each if each.proven or not each.patches else replace(each, patches=())
            for each in bindings
            if not each.refused
        ]
        if safe == bindings or self._has_all(workload, stored, bindings):
            return self._render(workload, incoming, stored, bindings)
        return self._render(workload, incoming, stored, safe)

    def _has_all(self, workload: Workload, stored: Json, bindings: list[Binding]) -> bool:
        return bool(stored) and self._render(workload, stored, stored, bindings).workload == stored

    def _render(self, workload: Workload, obj: Json, stored: Json, bindings: list[Binding]) -> Rendering:
        target = subject_key(workload.namespace, workload.kind, workload.name)
        autoscaled = bool(self._autoscalers.by_index("target", target))
        return render(obj, read_record(stored), items_of(bindings), Target(workload.pool, autoscaled))

    def _candidates(self, workload: Workload) -> Iterable[Binding]:
        for subject in subjects_of(workload):
            for _, binding in self._bindings.by_index("subject", subject):
                yield binding
