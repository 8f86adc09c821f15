"""Slots by their names, and which values a record may put into them."""

from __future__ import annotations

import pytest

from controllers.bindings.rendering.slots import NoPlace, Slot, fits, parse_slot, read_slot
from tests.controllers.support.workloads import DEPLOYMENT


@pytest.mark.parametrize(
    "name",
    [
        "",
        "image",
        "image/",
        "env/app",
        "env/app/",
        "replicas/x",
        "image/a/b",
        "x/y",
        "field",
        "field//",
        "label",
        "annotation/",
    ],
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
        (Slot("minreadyseconds"), 5, True),
        (Slot("minreadyseconds"), "5", False),
        (Slot("label", "a/b"), "x", True),
        (Slot("annotation", "a/b"), {}, False),
    ],
)
def test_a_value_has_the_type_of_its_slot(slot: Slot, value: object, does: bool) -> None:
    assert fits(slot, value) is does


def test_a_place_that_is_missing_is_said() -> None:
    with pytest.raises(NoPlace, match="ContainerNotFound"):
        read_slot(DEPLOYMENT, Slot("image", "none"))
