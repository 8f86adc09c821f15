"""What is read from a record that anybody may have written."""

from __future__ import annotations

import copy

import orjson
import pytest

from controllers.bindings.rendering.record import LARGEST_RECORD, RECORD, RecordEntry, read_record
from controllers.bindings.rendering.slots import Slot
from controllers.runtime import metrics
from kube.json_type import Json
from tests.controllers.support.workloads import DEPLOYMENT, rendered


def noted(note: str) -> Json:
    """The workload with a record."""
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
def test_a_malformed_record_is_no_record(note: str) -> None:
    workload = noted(note)
    assert read_record(workload) == {}
    assert rendered(workload, []).workload == DEPLOYMENT


def test_a_record_over_its_bound_is_no_record() -> None:
    reached = metrics.BOUNDS_REACHED.labels("record of a binding")
    before = reached._value.get()
    entry = {"was": "base", "set": "app:1"}
    note = orjson.dumps({"image/app": entry}).decode()
    assert read_record(noted(note.ljust(LARGEST_RECORD))) == {
        Slot("image", "app"): RecordEntry("base", "app:1")
    }
    assert read_record(noted(note.ljust(LARGEST_RECORD + 1))) == {}
    assert reached._value.get() == before + 1
