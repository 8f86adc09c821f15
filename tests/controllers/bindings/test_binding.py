"""Which workloads a binding is for."""

from __future__ import annotations

import pytest

from controllers.bindings.binding import Binding, items_of, read_binding
from controllers.bindings.workloads import Workload, WorkloadOwner
from controllers.cluster.node_pools import NodePool

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
        # Of the pools without a NodePool a selector finds none.
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
def test_pools(pools: list[str], selector: object, matching: str) -> None:
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
def test_subjects(kind: str, workload: Workload, is_subject: bool) -> None:
    assert Binding("ns", "b", kind=kind, subject="web").is_subject(workload) is is_subject


def test_items_come_by_name_and_patches_after_the_items_of_their_binding() -> None:
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
def test_what_the_api_server_has_made_of_a_binding(
    reason: str, generation: int, injected: int, proven: bool, refused: bool
) -> None:
    condition = {"type": "Injected", "reason": reason, "observedGeneration": generation}
    status = {"injectedWorkloads": injected, "conditions": [{"type": "Conflict"}, condition]}
    binding = read_binding({"metadata": {"generation": 2}, "status": status})
    assert (binding.proven, binding.refused) == (proven, refused)


@pytest.mark.parametrize(
    "obj", [{}, {"spec": {"subject": [], "items": {}}}, {"spec": {"subject": {"pools": [1]}}}]
)
def test_garbage_is_read_as_absent(obj: dict[str, object]) -> None:
    assert read_binding(obj).pools == frozenset()
