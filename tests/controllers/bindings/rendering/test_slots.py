"""Slots of a workload, and the record of the injected values."""

from __future__ import annotations

import copy

import orjson
import pytest

from controllers.bindings.rendering.slots import (
    LARGEST_RECORD,
    RECORD,
    RecordEntry,
    Slot,
    SlotUnavailable,
    fits,
    parse_slot,
    read_record,
    read_slot,
)
from controllers.runtime import metrics
from kube.json_type import Json
from tests.controllers.support.workloads import DEPLOYMENT, rendered


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
def test_an_unknown_slot_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a slot"):
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


def test_a_missing_container_makes_its_slot_unavailable() -> None:
    with pytest.raises(SlotUnavailable, match="ContainerNotFound"):
        read_slot(DEPLOYMENT, Slot("image", "none"))


def noted(note: str) -> Json:
    """Return the workload with a record."""
    workload = copy.deepcopy(DEPLOYMENT)
    workload["metadata"]["annotations"] = {RECORD: note}
    return workload


@pytest.mark.parametrize(
    "note",
    [
        "",
        "{",
        "[]",
        '{"image/app": null}',
        '{"image/app": {"set": "app:1"}}',
        '{"image/app": {"was": {"a": "b"}, "set": "app:1"}}',
        '{"replicas": {"was": -1, "set": 2}}',
        '{"replicas": {"was": true, "set": 2}}',
        '{"env/app/A": {"was": {"name": "OTHER"}, "set": {"name": "A", "value": "a"}}}',
        '{"unknown/app": {"was": "x", "set": "app:1"}}',
        '{"image/": {"was": "x", "set": "app:1"}}',
        '{"field/": {"was": "x", "set": "app:1"}}',
    ],
)
def test_a_malformed_record_is_ignored(note: str) -> None:
    workload = noted(note)
    assert read_record(workload) == {}
    assert rendered(workload, []).workload == DEPLOYMENT


def test_a_record_beyond_its_bound_is_ignored() -> None:
    reached = metrics.BOUNDS_REACHED.labels("record of a binding")
    before = reached._value.get()
    entry = {"was": "base", "set": "app:1"}
    note = orjson.dumps({"image/app": entry}).decode()
    assert read_record(noted(note.ljust(LARGEST_RECORD))) == {
        Slot("image", "app"): RecordEntry("base", "app:1")
    }
    assert read_record(noted(note.ljust(LARGEST_RECORD + 1))) == {}
    assert reached._value.get() == before + 1
