"""The facts that the manager reads from a YurtAppConfigBinding, and which workloads it concerns. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from controllers.bindings.injection import BindingItem
from controllers.bindings.workloads import OWNER_GROUP, Workload, subject_key
from controllers.runtime.events import ObjectReference
from controllers.runtime.informer import WatchedResource
from controllers.runtime.unstructured import mapping, metadata, number, objects, text
from kube.json_type import Json
from kube.requests.request_info import ResourceType

BINDING_TYPE = ResourceType("apps.openyurt.io", "v1alpha1", "yurtappconfigbindings")
BINDING_KIND = "YurtAppConfigBinding"
PLAIN_KINDS = frozenset({"Deployment", "StatefulSet"})
"""Kinds of a subject that is the workload itself. The others own their workloads."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A binding: its subject, the subject's pools and the items for them."""

    namespace: str
    name: str
    uid: str = ""
    generation: int = 0
    kind: str = ""
    subject: str = ""
    pools: frozenset[str] = frozenset()
    fields: tuple[Json, ...] = ()
    deleting: bool = False
    observed: int = 0
    workloads: int = -1
    """-1 until a manager has written the status."""
    injected: int = -1
    conditions: tuple[Json, ...] = ()

    @property
    def reference(self) -> ObjectReference:
        return ObjectReference(BINDING_TYPE.api_version, BINDING_KIND, self.namespace, self.name, self.uid)

    @property
    def items(self) -> list[BindingItem]:
        return [BindingItem(self.name, each) for each in self.fields]

    def is_subject(self, workload: Workload) -> bool:
        """Whether a workload is, or belongs to, the subject, in whatever pool."""
        if workload.namespace != self.namespace:
            return False
        if self.kind in PLAIN_KINDS:
            return (workload.kind, workload.name) == (self.kind, self.subject)
        owner = workload.owner
        return owner is not None and (owner.group, owner.kind, owner.name) == (
            OWNER_GROUP,
            self.kind,
            self.subject,
        )

    def matches(self, workload: Workload) -> bool:
        """Whether the items are for this workload."""
        return self.is_subject(workload) and matches_pool(self.pools, workload.pool)


def matches_pool(pools: frozenset[str], pool: str) -> bool:
    """Whether a list of pools includes one: `*` stands for all, `-name` takes one away whatever else is listed."""
    return bool(pool) and f"-{pool}" not in pools and (pool in pools or "*" in pools)


def items_for(workload: Workload, bindings: Iterable[Binding]) -> list[BindingItem]:
    """The items for a workload, in the order of the names of their bindings."""
    matching = [each for each in bindings if not each.deleting and each.matches(workload)]
    return [item for binding in sorted(matching, key=lambda each: each.name) for item in binding.items]


def subject_index(binding: Binding) -> list[str]:
    """The index by which an informer finds bindings by their subject."""
    return [subject_key(binding.namespace, binding.kind, binding.subject)]


def read_binding(obj: Json) -> Binding:
    meta, spec, status = metadata(obj), mapping(obj.get("spec")), mapping(obj.get("status"))
    subject = mapping(spec.get("subject"))
    pools = subject.get("pools")
    return Binding(
        namespace=text(meta.get("namespace")),
        name=text(meta.get("name")),
        uid=text(meta.get("uid")),
        generation=number(meta.get("generation")),
        kind=text(subject.get("kind")),
        subject=text(subject.get("name")),
        pools=frozenset(each for each in pools if isinstance(each, str))
        if isinstance(pools, list)
        else frozenset(),
        fields=tuple(objects(spec.get("items"))),
        deleting="deletionTimestamp" in meta,
        observed=number(status.get("observedGeneration")),
        workloads=number(status.get("workloads"), -1),
        injected=number(status.get("injectedWorkloads"), -1),
        conditions=tuple(objects(status.get("conditions"))),
    )


BINDINGS = WatchedResource(BINDING_TYPE, read_binding, indexers={"subject": subject_index})
