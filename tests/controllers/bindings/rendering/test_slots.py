"""Slots by their names, and which values a record may put into them."""

from __future__ import annotations

import copy

import pytest

from controllers.bindings.rendering.slots import NoPlace, Slot, fits, parse_slot, read_slot, write_slot
from tests.controllers.support.workloads import DEPLOYMENT, container


@pytest.mark.parametrize(
    "slot",
    [
        Slot("replicas"),
        Slot("strategy"),
        Slot("image", "app"),
        Slot("env", "app", "A"),
        Slot("env", "app", "with/slash"),
        Slot("configmap", "config"),
        Slot("pvc", "data"),
        Slot("field", "containers/name=app/image"),
    ],
)
def test_a_slot_is_found_by_its_name(slot: Slot) -> None:
    assert parse_slot(str(slot)) == slot


@pytest.mark.parametrize(
    "name",
    ["", "image", "image/", "env/app", "env/app/", "replicas/x", "image/a/b", "x/y", "field", "field//"],
)
def test_other_names_are_no_slots(name: str) -> None:
    with pytest.raises(ValueError, match="is no slot"):
        parse_slot(name)


@pytest.mark.parametrize(
    ("slot", "value", "does"),
    [
        (Slot("replicas"), 0, True),
        (Slot("replicas"), None, True),
        (Slot("replicas"), "1", False),
        (Slot("replicas"), True, False),
        (Slot("strategy"), {"type": "Recreate"}, True),
        (Slot("strategy"), "Recreate", False),
        (Slot("env", "app", "A"), {"name": "A"}, True),
        (Slot("env", "app", "A"), {"name": "B"}, False),
        (Slot("image", "app"), "x", True),
        (Slot("image", "app"), 1, False),
    ],
)
def test_a_value_has_the_type_of_its_slot(slot: Slot, value: object, does: bool) -> None:
    assert fits(slot, value) is does


def test_of_several_variables_of_a_name_the_last_counts() -> None:
    workload = copy.deepcopy(DEPLOYMENT)
    container(workload)["env"] = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    assert read_slot(workload, Slot("env", "app", "A")) == {"name": "A", "value": "2"}
    write_slot(workload, Slot("env", "app", "A"), {"name": "A", "value": "3"})
    assert [each["value"] for each in container(workload)["env"]] == ["1", "3"]


def test_the_last_variable_takes_the_list_along() -> None:
    workload = copy.deepcopy(DEPLOYMENT)
    write_slot(workload, Slot("env", "side", "A"), {"name": "A"})
    assert container(workload, "side")["env"] == [{"name": "A"}]
    write_slot(workload, Slot("env", "side", "A"), None)
    assert workload == DEPLOYMENT


def test_a_place_that_is_missing_is_said() -> None:
    with pytest.raises(NoPlace, match="ContainerNotFound"):
        read_slot(DEPLOYMENT, Slot("image", "none"))
