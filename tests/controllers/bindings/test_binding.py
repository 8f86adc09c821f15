"""Bindings: their parsing, the workloads that match, and their status."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from controllers.bindings.binding import Binding, WorkloadOutcome, binding_status, items_of, read_binding
from controllers.bindings.rendering.injection import Overridden, Rendering, Skipped
from controllers.bindings.workloads import Workload, WorkloadOwner
from controllers.cluster.node_pools import NodePool
from kube.json_type import Json

OURS = "apps.openyurt.io"


POOLS = {
    "a": NodePool("a", own_labels={"region": "east", "size": "1"}),
    "b": NodePool("b", own_labels={"region": "west"}),
    "c": NodePool("c"),
}
"""The NodePools of the cluster."""


@pytest.mark.parametrize(
    ("pools", "selector", "matching"),
    [
        (["a"], None, "a"),
        (["*"], None, "abcd"),
        (["*", "-b"], None, "acd"),
        (["b", "-b"], None, ""),
        (["-a"], None, ""),
        ([], None, ""),
        # A selector selects no pool without a NodePool.
        ([], {}, "abc"),
        ([], {"matchLabels": {"region": "east"}}, "a"),
        (["d"], {"matchLabels": {"region": "east"}}, "ad"),
        (["-a"], {"matchExpressions": [{"key": "region", "operator": "Exists"}]}, "b"),
        ([], {"matchExpressions": [{"key": "region", "operator": "DoesNotExist"}]}, "c"),
        ([], {"matchExpressions": [{"key": "region", "operator": "In", "values": ["west", "x"]}]}, "b"),
        ([], {"matchExpressions": [{"key": "region", "operator": "NotIn", "values": ["west"]}]}, "ac"),
        ([], {"matchLabels": {"region": "east", "size": "2"}}, ""),
        ([], {"matchExpressions": [{"key": "region", "operator": "Unknown"}]}, ""),
        ([], {"matchLabels": [], "matchExpressions": {"a": "b"}}, "abc"),
        ([], "no selector", ""),
    ],
)
def test_pools_are_selected_by_name_exclusion_and_selector(
    pools: list[str], selector: object, matching: str
) -> None:
    subject = {"kind": "Deployment", "name": "web", "pools": pools, "nodepoolSelector": selector}
    binding = read_binding({"metadata": {"namespace": "ns"}, "spec": {"subject": subject}})
    found = [
        pool
        for pool in ("a", "b", "c", "d", "")
        if binding.matches(Workload("Deployment", "ns", "web", pool=pool), POOLS.get)
    ]
    assert "".join(found) == matching


@pytest.mark.parametrize(
    ("kind", "workload", "is_subject"),
    [
        ("Deployment", Workload("Deployment", "ns", "web"), True),
        ("Deployment", Workload("StatefulSet", "ns", "web"), False),
        ("Deployment", Workload("Deployment", "other", "web"), False),
        (
            "Deployment",
            Workload("Deployment", "ns", "web-1", owner=WorkloadOwner(OURS, "Deployment", "web")),
            False,
        ),
        (
            "YurtAppSet",
            Workload("Deployment", "ns", "web-1", owner=WorkloadOwner(OURS, "YurtAppSet", "web")),
            True,
        ),
        (
            "YurtAppSet",
            Workload("StatefulSet", "ns", "web-1", owner=WorkloadOwner(OURS, "YurtAppSet", "web")),
            True,
        ),
        (
            "YurtAppSet",
            Workload("Deployment", "ns", "web-1", owner=WorkloadOwner(OURS, "YurtAppDaemon", "web")),
            False,
        ),
        (
            "YurtAppSet",
            Workload("Deployment", "ns", "web-1", owner=WorkloadOwner("else", "YurtAppSet", "web")),
            False,
        ),
        ("YurtAppSet", Workload("Deployment", "ns", "web"), False),
    ],
)
def test_subjects_are_matched_by_kind_name_and_owner(kind: str, workload: Workload, is_subject: bool) -> None:
    assert Binding("ns", "b", kind=kind, subject="web").is_subject(workload) is is_subject


def test_items_apply_in_the_order_of_binding_names_and_then_patches() -> None:
    given = [Binding("ns", name, fields=({"replicas": 1},), patches=({"path": "p"},)) for name in ("z", "a")]
    assert [(each.binding, *each.fields) for each in items_of(given)] == [
        ("a", "replicas"),
        ("a", "patch"),
        ("z", "replicas"),
        ("z", "patch"),
    ]


@pytest.mark.parametrize(
    ("reason", "generation", "injected", "proven", "refused"),
    [
        ("", 2, 0, False, False),
        ("AllInjected", 2, 1, True, False),
        ("AllInjected", 1, 1, False, False),
        ("Pending", 2, 0, False, False),
        ("Pending", 2, 1, True, False),
        ("Skipped", 2, 0, True, False),
        ("Refused", 2, 0, False, True),
        ("Refused", 2, 1, True, True),
        ("Refused", 1, 0, False, False),
    ],
)
def test_the_status_of_a_binding_is_parsed(
    reason: str, generation: int, injected: int, proven: bool, refused: bool
) -> None:
    condition = {"type": "Injected", "reason": reason, "observedGeneration": generation}
    status = {"injectedWorkloads": injected, "conditions": [{"type": "Conflict"}, condition]}
    binding = read_binding({"metadata": {"generation": 2}, "status": status})
    assert (binding.proven, binding.refused) == (proven, refused)


@pytest.mark.parametrize(
    "obj", [{}, {"spec": {"subject": [], "items": {}}}, {"spec": {"subject": {"pools": [1]}}}]
)
def test_malformed_fields_are_read_as_absent(obj: dict[str, object]) -> None:
    assert read_binding(obj).pools == frozenset()


NOW = datetime(2026, 11, 22, tzinfo=UTC)
BINDING = Binding("ns", "b", generation=3, kind="YurtAppSet", subject="shop")
DONE = Rendering({}, {})


def outcome(name: str = "web", rendering: Rendering = DONE, **fields: object) -> WorkloadOutcome:
    return replace(WorkloadOutcome(Workload("Deployment", "ns", name), rendering), **fields)  # type: ignore[arg-type]  # checked by the dataclass


def conditions(status: Json) -> dict[str, tuple[str, str, str]]:
    return {each["type"]: (each["status"], each["reason"], each["message"]) for each in status["conditions"]}


def test_a_completely_injected_binding_has_good_conditions() -> None:
    status = binding_status(BINDING, True, [outcome("a"), outcome("b")], NOW)
    assert (status["observedGeneration"], status["workloads"], status["injectedWorkloads"]) == (3, 2, 2)
    assert conditions(status) == {
        "SubjectFound": ("True", "WorkloadsFound", ""),
        "Injected": ("True", "AllInjected", ""),
        "Conflict": ("False", "NoConflict", ""),
    }


def test_without_workloads_the_condition_injected_is_unknown() -> None:
    found = conditions(binding_status(BINDING, False, [], NOW))
    assert found["SubjectFound"] == ("False", "NoWorkload", "no workload belongs to YurtAppSet shop")
    assert found["Injected"][:2] == ("Unknown", "NoWorkload")


def test_the_worst_reason_is_reported_first_with_three_workloads() -> None:
    skipped = Rendering({}, {}, (Skipped("b", "image/x", "ContainerNotFound"), Skipped("other", "y", "z")))
    outcomes = [outcome(f"w{number}", skipped) for number in range(5)]
    status = binding_status(BINDING, True, outcomes, NOW)
    assert status["injectedWorkloads"] == 0
    named = "; ".join(f"Deployment w{number}: image/x: ContainerNotFound" for number in range(3))
    assert conditions(status)["Injected"] == ("False", "Skipped", f"{named}; and 2 more")
    outcomes.append(outcome("pending", pending=True))
    assert conditions(binding_status(BINDING, True, outcomes, NOW))["Injected"][1] == "Pending"
    outcomes.append(outcome("refused", pending=True, refused="422 no"))
    said = conditions(binding_status(BINDING, True, outcomes, NOW))["Injected"]
    assert said == ("False", "Refused", "Deployment refused: 422 no")


def test_an_overridden_and_a_contested_item_are_conflicts() -> None:
    lost = Rendering({}, {}, (), (Overridden("b", "image/app", "c"), Overridden("x", "replicas", "y")))
    said = conditions(binding_status(BINDING, True, [outcome(rendering=lost)], NOW))["Conflict"]
    assert said == ("True", "Overridden", "Deployment web: image/app is set by c")
    contested = conditions(binding_status(BINDING, True, [outcome(contested=True)], NOW))["Conflict"]
    assert contested[:2] == ("True", "NotHeld")
