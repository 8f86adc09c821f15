"""The facts that the manager reads from a YurtAppConfigBinding, the workloads that it concerns, and its status.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from controllers.bindings.rendering.injection import BindingItem, Rendering
from controllers.bindings.workloads import OWNER_GROUP, WORKLOAD_TYPES, Workload, subject_key
from controllers.cluster.node_pools import NodePool, with_condition
from controllers.runtime.informer import WatchedResource
from controllers.runtime.unstructured import mapping, metadata, number, objects, strings, text, texts
from controllers.runtime.write_client import ObjectReference
from kube.json_type import Json
from kube.requests.label_requirements import LabelRequirement, Operator
from kube.requests.request_info import ResourceType

BINDING_TYPE = ResourceType("apps.openyurt.io", "v1alpha1", "yurtappconfigbindings")
BINDING_KIND = "YurtAppConfigBinding"
PLAIN_KINDS = frozenset(WORKLOAD_TYPES)
"""Kinds of a subject that is the workload itself. Subjects of other kinds own their workloads."""
OPERATORS = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.ABSENT,
}

type PoolOfName = Callable[[str], NodePool | None]
"""Finds the NodePool with a name; returns None if it does not exist."""


@dataclass(frozen=True, slots=True)
class Binding:
    """The facts of a YurtAppConfigBinding: its subject, the subject's pools, and the items and patches for them."""

    namespace: str
    name: str
    uid: str = ""
    generation: int = 0
    kind: str = ""
    subject: str = ""
    pools: frozenset[str] = frozenset()
    selector: tuple[LabelRequirement, ...] | None = None
    """Selects pools by the labels of their NodePools, in addition to `pools`. None selects none, an empty one all."""
    fields: tuple[Json, ...] = ()
    patches: tuple[Json, ...] = ()
    deleting: bool = False
    observed: int = 0
    workloads: int = -1
    """Number of workloads in the status; -1 before the first status."""
    injected: int = -1
    conditions: tuple[Json, ...] = ()

    @property
    def reference(self) -> ObjectReference:
        return ObjectReference(BINDING_TYPE.api_version, BINDING_KIND, self.namespace, self.name, self.uid)

    @property
    def items(self) -> list[BindingItem]:
        patches = ({"patch": patch} for patch in self.patches)
        return [BindingItem(self.name, field) for field in (*self.fields, *patches)]

    @property
    def refused(self) -> bool:
        """Whether the API server refuses a workload with these items and patches."""
        return self._reason == "Refused"

    @property
    def proven(self) -> bool:
        """Whether the API server has accepted these items and patches in some workload."""
        return (self.injected > 0 and bool(self._reason)) or self._reason == "Skipped"

    @property
    def _reason(self) -> str:
        """Return the reason of the condition Injected; "" if it is about an older generation."""
        for condition in self.conditions:
            if condition.get("type") == "Injected" and condition.get("observedGeneration") == self.generation:
                return text(condition.get("reason"))
        return ""

    def is_subject(self, workload: Workload) -> bool:
        """Whether a workload is the subject, or belongs to it, in any pool."""
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

    def matches(self, workload: Workload, pools: PoolOfName) -> bool:
        """Whether the binding applies to this workload."""
        return self.is_subject(workload) and self._includes(workload.pool, pools)

    def _includes(self, name: str, pools: PoolOfName) -> bool:
        if not name or f"-{name}" in self.pools:
            return False
        if name in self.pools or "*" in self.pools:
            return True
        pool = pools(name) if self.selector is not None else None
        return pool is not None and all(
            requirement.matches(pool.own_labels) for requirement in self.selector or ()
        )


def matching(bindings: Iterable[Binding], workload: Workload, pools: PoolOfName) -> list[Binding]:
    """Return the bindings whose items apply to a workload, without those that are being deleted."""
    return [binding for binding in bindings if not binding.deleting and binding.matches(workload, pools)]


def items_of(bindings: Iterable[Binding]) -> list[BindingItem]:
    """Return all items of the bindings, in the order of the bindings' names."""
    return [item for binding in sorted(bindings, key=lambda binding: binding.name) for item in binding.items]


def subject_index(binding: Binding) -> list[str]:
    """Return the index values by which an informer finds a binding by its subject."""
    return [subject_key(binding.namespace, binding.kind, binding.subject)]


def read_binding(obj: Json) -> Binding:
    meta, spec, status = metadata(obj), mapping(obj.get("spec")), mapping(obj.get("status"))
    subject = mapping(spec.get("subject"))
    return Binding(
        namespace=text(meta.get("namespace")),
        name=text(meta.get("name")),
        uid=text(meta.get("uid")),
        generation=number(meta.get("generation")),
        kind=text(subject.get("kind")),
        subject=text(subject.get("name")),
        pools=frozenset(strings(subject.get("pools"))),
        selector=read_selector(subject.get("nodepoolSelector")),
        fields=tuple(objects(spec.get("items"))),
        patches=tuple(objects(spec.get("patches"))),
        deleting="deletionTimestamp" in meta,
        observed=number(status.get("observedGeneration")),
        workloads=number(status.get("workloads"), -1),
        injected=number(status.get("injectedWorkloads"), -1),
        conditions=tuple(objects(status.get("conditions"))),
    )


def read_selector(value: object) -> tuple[LabelRequirement, ...] | None:
    """Parse the conditions of a metav1.LabelSelector, None if it is absent. A malformed condition, which the schema
    refuses, matches no labels."""
    if not isinstance(value, dict):
        return None
    requirements = [
        LabelRequirement(key, Operator.IN, (label,)) for key, label in texts(value.get("matchLabels")).items()
    ]
    for expression in objects(value.get("matchExpressions")):
        operator = OPERATORS.get(text(expression.get("operator")), Operator.IN)
        values = tuple(sorted(set(strings(expression.get("values")))))
        requirements.append(LabelRequirement(text(expression.get("key")), operator, values))
    return tuple(requirements)


BINDINGS = WatchedResource(BINDING_TYPE, read_binding, indexers={"subject": subject_index})


SHOWN = 3
"""Workloads that a condition's message names: a subject may have hundreds."""
LONGEST_DETAIL = 300
"""Characters of the message about one workload."""


@dataclass(frozen=True, slots=True)
class WorkloadOutcome:
    """The outcome of a binding in one workload.

    `pending`: the workload does not have the rendered values yet. `refused`: the API server's error about the
    rendering. `contested`: a client that keeps reverting the rendering.
    """

    workload: Workload
    rendering: Rendering
    pending: bool = False
    refused: str = ""
    contested: bool = False


def binding_status(
    binding: Binding, subject_exists: bool, outcomes: Sequence[WorkloadOutcome], now: datetime
) -> Json:
    """Return the merge patch of the status fields that must change; {} if none must.

    `subject_exists`: some workload belongs to the subject, in any pool. `outcomes`: one for each workload to which the
    binding applies.
    """
    complaints = [_complaint(binding, outcome) for outcome in outcomes]
    conditions = list(binding.conditions)
    for kind, condition in (
        ("SubjectFound", _subject_found(binding, subject_exists)),
        ("Injected", _injected(len(outcomes), complaints, outcomes)),
        ("Conflict", _conflict(binding, outcomes)),
    ):
        condition["observedGeneration"] = binding.generation
        conditions = with_condition(tuple(conditions), kind, condition, now)
    status: Json = {}
    if binding.observed != binding.generation:
        status["observedGeneration"] = binding.generation
    if binding.workloads != len(outcomes):
        status["workloads"] = len(outcomes)
    injected = sum(not reason for reason, _ in complaints)
    if binding.injected != injected:
        status["injectedWorkloads"] = injected
    if conditions != list(binding.conditions):
        status["conditions"] = conditions
    return status


def _subject_found(binding: Binding, exists: bool) -> Json:
    if exists:
        return {"status": "True", "reason": "WorkloadsFound", "message": ""}
    message = f"no workload belongs to {binding.kind} {binding.subject}"
    return {"status": "False", "reason": "NoWorkload", "message": message}


def _complaint(binding: Binding, outcome: WorkloadOutcome) -> tuple[str, str]:
    """Return the reason why a workload lacks some items, and details; "" if it has all."""
    if outcome.refused:
        return "Refused", outcome.refused
    if outcome.pending:
        return "Pending", "to be written"
    skipped = [str(skip) for skip in outcome.rendering.skipped if skip.binding == binding.name]
    return ("Skipped", ", ".join(skipped)) if skipped else ("", "")


def _injected(matched: int, complaints: list[tuple[str, str]], outcomes: Sequence[WorkloadOutcome]) -> Json:
    if not matched:
        return {"status": "Unknown", "reason": "NoWorkload", "message": "no workload in these pools"}
    for reason in ("Refused", "Pending", "Skipped"):
        details = [
            f"{outcome.workload.kind} {outcome.workload.name}: {detail[:LONGEST_DETAIL]}"
            for outcome, (said, detail) in zip(outcomes, complaints, strict=True)
            if said == reason
        ]
        if details:
            return {"status": "False", "reason": reason, "message": _shortened(details)}
    return {"status": "True", "reason": "AllInjected", "message": ""}


def _conflict(binding: Binding, outcomes: Sequence[WorkloadOutcome]) -> Json:
    lost = [
        f"{outcome.workload.kind} {outcome.workload.name}: {slot.slot} is set by {slot.winner}"
        for outcome in outcomes
        for slot in outcome.rendering.overridden
        if slot.binding == binding.name
    ]
    if lost:
        return {"status": "True", "reason": "Overridden", "message": _shortened(lost)}
    contested = [
        f"{outcome.workload.kind} {outcome.workload.name}" for outcome in outcomes if outcome.contested
    ]
    if contested:
        message = f"another client reverts the items in {_shortened(contested)}"
        return {"status": "True", "reason": "NotHeld", "message": message}
    return {"status": "False", "reason": "NoConflict", "message": ""}


def _shortened(details: list[str]) -> str:
    more = len(details) - SHOWN
    return "; ".join(details[:SHOWN]) + (f"; and {more} more" if more > 0 else "")
