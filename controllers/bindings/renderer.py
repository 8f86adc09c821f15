"""Renders workloads with the bindings, autoscalers and node pools in the manager's informers.

Users who may edit a workload or a binding decide how large it is, so a rendering never runs in the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace

from controllers.bindings.binding import Binding, items_of, matching
from controllers.bindings.rendering.injection import Rendering, Target, render
from controllers.bindings.rendering.slots import read_record
from controllers.bindings.workloads import Autoscaler, Workload, subject_key, subjects_of
from controllers.cluster.node_pools import NodePool
from controllers.runtime.informer import Informer
from kube.json_type import Json


class Renderer:
    """Renders workloads for the controller and the webhook."""

    def __init__(
        self, bindings: Informer[Binding], autoscalers: Informer[Autoscaler], pools: Informer[NodePool]
    ) -> None:
        """`pools` may be an informer of a kind that the API server does not serve: then selectors find no pool."""
        self._bindings = bindings
        self._autoscalers = autoscalers
        self._pools = pools
        self._lock = asyncio.Lock()

    @property
    def has_synced(self) -> bool:
        pools = self._pools.has_synced or self._pools.missing
        return self._bindings.has_synced and self._autoscalers.has_synced and pools

    def pool(self, name: str) -> NodePool | None:
        """Return the NodePool with a name; None if it does not exist."""
        return self._pools.get(("", name))

    def matching(self, workload: Workload) -> list[Binding]:
        """Return the bindings that apply to a workload."""
        return matching(self._candidates(workload), workload, self.pool)

    async def render(self, workload: Workload, obj: Json, stored: Json) -> Rendering:
        """Render a workload with its bindings, by the record of the `stored` object; {} for a new workload."""
        bindings, target = self.matching(workload), self._target(workload)
        return await self.beside(lambda: _render(obj, stored, bindings, target))

    async def admit(self, workload: Workload, incoming: Json, stored: Json) -> Rendering:
        """Render a workload for the webhook, on a write.

        A binding can make a workload invalid, and the API server would then refuse the write of a user who does not
        know the binding. So the webhook skips a binding that the API server has refused somewhere, and patches that no
        workload has yet, unless the stored workload has them: the controller writes those.
        """
        bindings, target = self.matching(workload), self._target(workload)
        safe = [
            binding if binding.proven or not binding.patches else replace(binding, patches=())
            for binding in bindings
            if not binding.refused
        ]

        def admitted() -> Rendering:
            if safe == bindings or (stored and _render(stored, stored, bindings, target).workload == stored):
                return _render(incoming, stored, bindings, target)
            return _render(incoming, stored, safe, target)

        return await self.beside(admitted)

    async def beside[R](self, work: Callable[[], R]) -> R:
        """Run long work in a thread. One job runs at a time, so the event loop keeps half of the processor's time."""
        async with self._lock:
            return await asyncio.to_thread(work)

    def _target(self, workload: Workload) -> Target:
        key = subject_key(workload.namespace, workload.kind, workload.name)
        return Target(workload.pool, bool(self._autoscalers.by_index("target", key)))

    def _candidates(self, workload: Workload) -> Iterable[Binding]:
        for subject in subjects_of(workload):
            for _, binding in self._bindings.by_index("subject", subject):
                yield binding


def _render(obj: Json, stored: Json, bindings: Iterable[Binding], target: Target) -> Rendering:
    return render(obj, read_record(stored), items_of(bindings), target)
