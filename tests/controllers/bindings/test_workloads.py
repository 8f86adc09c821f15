"""The parts of workloads and autoscalers that the manager reads and stores."""

from __future__ import annotations

import copy

import pytest

from controllers.bindings.rendering.slots import RECORD
from controllers.bindings.workloads import (
    AUTOSCALERS,
    WORKLOADS,
    WorkloadOwner,
    read_autoscaler,
    read_workload,
    subjects_of,
)
from kube.json_type import Json
from tests.controllers.support.workloads import DEPLOYMENT


def owned_by(*owners: Json) -> Json:
    workload = copy.deepcopy(DEPLOYMENT)
    workload["metadata"]["ownerReferences"] = list(owners)
    return workload


OWNER = {"apiVersion": "apps.openyurt.io/v1beta1", "kind": "YurtAppSet", "name": "shop", "controller": True}


def test_the_owner_is_the_controller_reference_at_any_position() -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}
    workload = read_workload(owned_by(other, OWNER))
    assert workload.owner == WorkloadOwner("apps.openyurt.io", "YurtAppSet", "shop")
    assert subjects_of(workload) == ["ns/Deployment/web", "ns/YurtAppSet/shop"]
    assert read_workload(owned_by({**OWNER, "controller": False})).owner is None


def test_an_owner_of_another_api_group_is_no_subject() -> None:
    assert subjects_of(read_workload(owned_by({**OWNER, "apiVersion": "x/v1"}))) == ["ns/Deployment/web"]


def test_stored_facts_change_with_the_spec_and_not_with_the_status() -> None:
    changed = copy.deepcopy(DEPLOYMENT)
    changed["status"] = {"readyReplicas": 1}
    changed["metadata"]["resourceVersion"] = "9"
    assert read_workload(changed) == read_workload(DEPLOYMENT)
    changed["spec"]["replicas"] = 9
    assert read_workload(changed) != read_workload(DEPLOYMENT)


@pytest.mark.parametrize(
    ("meta", "is_unpruned"),
    [
        ({"labels": {"apps.openyurt.io/pool-name": "p"}}, True),
        ({"annotations": {RECORD: "{}"}}, True),
        ({"labels": {"a": "b"}}, False),
    ],
)
def test_a_workload_outside_every_binding_is_stored_without_its_spec(meta: Json, is_unpruned: bool) -> None:
    workload = {**copy.deepcopy(DEPLOYMENT), "metadata": {"name": "web", "managedFields": [], **meta}}
    del workload["kind"]  # as an item of a list
    stored = WORKLOADS["Deployment"].transform(workload)
    assert stored["kind"] == "Deployment"
    assert ("spec" in stored) is is_unpruned
    assert "managedFields" not in stored["metadata"]
    assert read_workload(stored).concerned is is_unpruned


@pytest.mark.parametrize(
    ("target", "index"),
    [
        ({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, ["ns/Deployment/web"]),
        ({"apiVersion": "other/v1", "kind": "Deployment", "name": "web"}, ["ns//web"]),
        (None, ["ns//"]),
    ],
)
def test_the_target_of_an_autoscaler_is_read(target: Json | None, index: list[str]) -> None:
    obj: Json = {"metadata": {"namespace": "ns", "name": "h"}, "spec": {"scaleTargetRef": target}}
    stored = AUTOSCALERS.transform(copy.deepcopy(obj))
    assert list(AUTOSCALERS.indexers["target"](read_autoscaler(stored))) == index
