"""Which workloads a binding is for."""

from __future__ import annotations

import pytest

from controllers.bindings.binding import Binding, items_for, matches_pool, read_binding
from controllers.bindings.workloads import Workload, WorkloadOwner

OURS = "apps.openyurt.io"


@pytest.mark.parametrize(
    ("pools", "pool", "matches"),
    [
        (["a"], "a", True),
        (["a"], "b", False),
        (["*"], "b", True),
        (["*", "-b"], "b", False),
        (["b", "-b"], "b", False),
        (["-a"], "b", False),
        (["*"], "", False),
    ],
)
def test_pools(pools: list[str], pool: str, matches: bool) -> None:
    assert matches_pool(frozenset(pools), pool) is matches


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


def test_items_come_in_the_order_of_names_and_not_from_a_binding_that_goes() -> None:
    workload = Workload("Deployment", "ns", "web", pool="p")
    every = frozenset("*")
    given = [
        Binding("ns", "z", kind="Deployment", subject="web", pools=every, fields=({"replicas": 1},)),
        Binding("ns", "a", kind="Deployment", subject="web", pools=every, fields=({"replicas": 2},)),
        Binding(
            "ns", "m", kind="Deployment", subject="web", pools=every, deleting=True, fields=({"replicas": 3},)
        ),
    ]
    assert [(each.binding, each.fields["replicas"]) for each in items_for(workload, given)] == [
        ("a", 2),
        ("z", 1),
    ]


@pytest.mark.parametrize(
    "obj", [{}, {"spec": {"subject": [], "items": {}}}, {"spec": {"subject": {"pools": [1]}}}]
)
def test_garbage_is_read_as_absent(obj: dict[str, object]) -> None:
    assert read_binding(obj).pools == frozenset()
