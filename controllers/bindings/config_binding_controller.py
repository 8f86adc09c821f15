"""Writes the values of bindings into their workloads, where the webhook did not, and reports in each binding's
status."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from controllers.bindings.binding import (
    BINDING_KIND,
    BINDINGS,
    PLAIN_KINDS,
    Binding,
    WorkloadOutcome,
    binding_status,
)
from controllers.bindings.renderer import Renderer
from controllers.bindings.rendering.injection import Rendering
from controllers.bindings.rendering.slots import Slot, Value
from controllers.bindings.workloads import (
    AUTOSCALERS,
    WORKLOAD_TYPES,
    WORKLOADS,
    Autoscaler,
    Workload,
    subject_key,
)
from controllers.cluster.node_pools import NODEPOOLS, NodePool
from controllers.runtime import metrics
from controllers.runtime.controller import REFUSED, Context, Controller
from controllers.runtime.informer import Informer
from kube.errors import StatusError
from kube.json_type import Json
from kube.store.store import Key

WRITES_A_SECOND = 20
"""Workloads written in one second, because each write is a rollout."""
STATUS_DELAY = 0.5
"""Seconds in which changes of a binding's workloads are combined into one status."""
ATTEMPTS = 3
"""Writes of one rendering to one workload within CONTEST_WINDOW. If they do not suffice, another client reverts it."""
CONTEST_WINDOW = 60.0
"""Seconds in which ATTEMPTS writes are counted."""
RETRY = 2.0
"""Seconds until a write is repeated whose response lacks the rendering; each further delay is doubled."""
CONTEST_PAUSE = 600.0
"""Seconds for which a contested workload is not written; also the retry delay after a refusal."""


class WriteLimit:
    """A sliding window: at most `count` writes begin in any second, all of them at once if need be."""

    def __init__(self, count: int) -> None:
        self._begun: deque[float] = deque(maxlen=count)
        """Loop times at which the last writes began or, if reserved, will begin."""

    def reserve(self) -> float:
        """Reserve the next write; return the seconds to wait until it may begin."""
        now = asyncio.get_running_loop().time()
        at = now
        if len(self._begun) == self._begun.maxlen:
            at = max(now, self._begun[0] + 1.0)
        self._begun.append(at)
        return at - now


@dataclass(slots=True)
class _Effort:
    """The attempts to write one rendering to a workload: the values, the number of writes, and the API server's last
    error."""

    injected: Mapping[Slot, Value]
    writes: int = 0
    began: float = 0.0
    """Loop time of the first write."""
    refused: str = ""
    contested: bool = False
    """Whether another client, or a later webhook, has reverted the values ATTEMPTS times."""
    again_at: float = 0.0
    """Loop time of the next permitted write."""


class ConfigBindingController(Controller):
    """Injects bindings into workloads, and writes the bindings' status. Keys: (namespace, "<kind>/<name>") of a
    workload or a binding."""

    name = "configbinding"
    workers = 4
    debounce = 0.1

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._efforts: dict[Key, _Effort] = {}
        self._caused_by_bindings: set[Key] = set()
        self._limit = WriteLimit(WRITES_A_SECOND)
        self._bindings = self.watch(BINDINGS, self._of_binding)
        self._workloads: dict[str, Informer[Workload]] = {
            kind: self.watch(watched, self._of_workload) for kind, watched in WORKLOADS.items()
        }
        autoscalers = self.watch(AUTOSCALERS, self._of_autoscaler)
        pools = self.watch(NODEPOOLS, self._of_pool, optional=True)
        self._renderer = Renderer(self._bindings, autoscalers, pools)

    async def reconcile(self, key: Key) -> None:
        kind, _, name = key[1].partition("/")
        if kind == BINDING_KIND:
            await self._report((key[0], name))
        else:
            await self._inject(key, kind, name)

    async def _inject(self, key: Key, kind: str, name: str) -> None:
        informer = self._workloads[kind]
        workload, live = informer.get((key[0], name)), informer.object((key[0], name))
        if workload is None or live is None or not workload.concerned:
            self._efforts.pop(key, None)
            return
        rendering = await self._renderer.render(workload, live, live)
        patch = merge_diff(live, rendering.workload)
        if not patch:
            self._caused_by_bindings.discard(key)
        elif not self._held_back(key, rendering):
            await asyncio.sleep(self._limit.reserve())
            patch.setdefault("metadata", {})["resourceVersion"] = workload.version
            await self._write(key, workload, patch)
        for binding in self._renderer.matching(workload):
            self._report_soon(binding)

    def _held_back(self, key: Key, rendering: Rendering) -> bool:
        """Whether to delay this rendering, because it was refused or written too often; if so, requeue the key."""
        effort = self._efforts.get(key)
        if effort is None or effort.injected != injected(rendering):
            self._efforts[key] = _Effort(injected(rendering))
            return False
        wait = effort.again_at - asyncio.get_running_loop().time()
        if wait > 0:
            self.queue.add_after(key, wait)
            return True
        return False

    async def _write(self, key: Key, workload: Workload, patch: Json) -> None:
        effort, loop = self._efforts[key], asyncio.get_running_loop()
        resource = WORKLOAD_TYPES[workload.kind]
        bindings = self._renderer.matching(workload)
        try:
            written = await self._context.api.merge_patch(resource, workload.namespace, workload.name, patch)
        except StatusError as error:
            if error.code == 404:
                return
            if error.code not in REFUSED:
                raise
            effort.refused, effort.again_at = str(error), loop.time() + CONTEST_PAUSE
            self.queue.add_after(key, CONTEST_PAUSE)
            for binding in bindings:
                message = f"{workload.kind} {workload.name}: {error}"
                await self._context.events.warning(binding.reference, "Refused", message)
            return
        effort.refused = ""
        if loop.time() - effort.began > CONTEST_WINDOW:
            effort.began, effort.writes = loop.time(), 0
        effort.writes += 1
        wait = 0.0
        # A later webhook may have set the same fields back. Then the object does not change, and no event comes.
        if (await self._renderer.render(workload, written, written)).workload != written:
            wait = RETRY * 2 ** (effort.writes - 1)
        if effort.writes >= ATTEMPTS:
            effort.contested = True
            effort.writes, wait = 0, CONTEST_PAUSE
        if wait:
            effort.again_at = loop.time() + wait
            self.queue.add_after(key, wait)
        missed = key not in self._caused_by_bindings
        self._caused_by_bindings.discard(key)
        if missed:
            metrics.WEBHOOK_MISSED.inc()
        names = ", ".join(binding.name for binding in bindings)
        message = f"config of {names} was injected" if bindings else "injected config was removed"
        await self._context.events.normal(
            workload.reference, "Injected" if bindings else "GivenBack", message
        )
        await self._workloads[workload.kind].wait_until_observed(written)

    async def _report(self, key: Key) -> None:
        """Write the status of a binding."""
        binding = self._bindings.get(key)
        if binding is None or binding.deleting:
            return
        subjects = [candidate for candidate in self._candidates(binding) if binding.is_subject(candidate)]
        matching = [subject for subject in subjects if binding.matches(subject, self._renderer.pool)]
        outcomes = [await self._outcome(workload) for workload in matching]
        status = binding_status(binding, bool(subjects), outcomes, datetime.now(UTC))
        if status:
            await self.patch(self._bindings, key, {"status": status}, "status")

    async def _outcome(self, workload: Workload) -> WorkloadOutcome:
        live = self._workloads[workload.kind].object((workload.namespace, workload.name)) or {}
        rendering = await self._renderer.render(workload, live, live)
        effort = self._efforts.get(workload_key(workload))
        if effort is not None and effort.injected != injected(rendering):
            effort = None
        waits = effort is not None and effort.again_at > asyncio.get_running_loop().time()
        pending = rendering.workload != live
        return WorkloadOutcome(
            workload,
            rendering,
            pending=pending,
            refused=effort.refused if effort is not None and waits else "",
            contested=pending and effort is not None and effort.contested and not effort.refused,
        )

    def _candidates(self, binding: Binding) -> list[Workload]:
        """Return the workloads that may belong to a binding's subject, sorted by kind and name."""
        subject = subject_key(binding.namespace, binding.kind, binding.subject)
        kinds = [binding.kind] if binding.kind in PLAIN_KINDS else list(self._workloads)
        workloads = [
            workload for kind in kinds for _, workload in self._workloads[kind].by_index("subject", subject)
        ]
        return [workload for workload in workloads if not workload.deleting]

    def _of_binding(self, _key: Key, old: Binding | None, new: Binding | None) -> Iterable[Key]:
        """Return the keys to reconcile after a change of a binding: its own, and those of the workloads that the old or
        the new version concerns."""
        if (
            old is not None
            and new is not None
            and (old.generation, old.deleting) == (new.generation, new.deleting)
        ):
            return
        for binding in (old, new):
            if binding is not None:
                for workload in self._candidates(binding):
                    key = workload_key(workload)
                    self._caused_by_bindings.add(key)
                    self._efforts.pop(key, None)
                    yield key
        if new is not None:
            self._report_soon(new)

    def _of_workload(self, _key: Key, old: Workload | None, new: Workload | None) -> Iterable[Key]:
        if old == new:
            return
        if old is None and not self.has_synced and new is not None:
            # Either the webhook missed it, or a binding changed while no manager ran.
            self._caused_by_bindings.add(workload_key(new))
        for workload in (old, new):
            if workload is not None and workload.concerned:
                for binding in self._renderer.matching(workload):
                    self._report_soon(binding)
        current = new or old
        if current is not None and any(
            workload is not None and workload.concerned for workload in (old, new)
        ):
            yield workload_key(current)

    def _of_autoscaler(self, _key: Key, old: Autoscaler | None, new: Autoscaler | None) -> Iterable[Key]:
        if old == new:
            return
        for workload in (old, new):
            if workload is not None and workload.kind in self._workloads:
                key = (workload.namespace, f"{workload.kind}/{workload.name}")
                self._caused_by_bindings.add(key)
                yield key

    def _of_pool(self, key: Key, old: NodePool | None, new: NodePool | None) -> Iterable[Key]:
        """Return the keys to reconcile after a change of a NodePool's labels: those of the pool's workloads whose
        bindings select pools by labels."""
        if (old and old.own_labels) == (new and new.own_labels):
            return
        for _, binding in self._bindings.items():
            if binding.selector is None:
                continue
            for workload in self._candidates(binding):
                if workload.pool == key[1]:
                    self._caused_by_bindings.add(workload_key(workload))
                    yield workload_key(workload)
            self._report_soon(binding)

    def _report_soon(self, binding: Binding) -> None:
        self.queue.add_after((binding.namespace, f"{BINDING_KIND}/{binding.name}"), STATUS_DELAY)


def injected(rendering: Rendering) -> Mapping[Slot, Value]:
    """Return the injected values by slot. Unlike the record, they do not change when another client changes a slot."""
    return {slot: entry.injected for slot, entry in rendering.record.items()}


def workload_key(workload: Workload) -> Key:
    return workload.namespace, f"{workload.kind}/{workload.name}"


def merge_diff(old: Json, new: Json) -> Json:
    """Return the merge patch (RFC 7386) from `old` to `new`. A list that differs is replaced completely."""
    patch: Json = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            if inner := merge_diff(before, value):
                patch[key] = inner
        elif key not in old or before != value:
            patch[key] = value
    return patch
