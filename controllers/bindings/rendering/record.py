"""The record on a workload of what bindings injected and what was there before: an annotation in JSON. Pure.

Whoever may edit the workload may have written it. So what is malformed in it counts as absent, and so does a record
over its bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from controllers.bindings.rendering.slots import Slot, Value, fits, parse_slot
from controllers.bindings.rendering.template_patches import MAX_DEPTH, depth
from controllers.runtime.unstructured import mapping, metadata, number, parsed_note, texts
from kube.bounds import reached
from kube.json_type import Json

RECORD = "apps.openyurt.io/config-bindings"
"""The annotation of a workload that holds the record."""
LARGEST_RECORD = 128 * 1024
"""Bytes, half of what the API server allows for all annotations of an object. A longer record is somebody else's."""


@dataclass(frozen=True, slots=True)
class RecordEntry:
    """What the record says of a slot: its base and what was injected. `at` is the index of a list's element."""

    base: Value
    injected: Value
    at: int = 0


type Record = Mapping[Slot, RecordEntry]


def read_record(workload: Json) -> Record:
    """The record of a workload, empty without one."""
    note = texts(metadata(workload).get("annotations")).get(RECORD, "").encode()
    if len(note) > LARGEST_RECORD:
        reached("record of a binding")
        return {}
    record: dict[Slot, RecordEntry] = {}
    for name, value in parsed_note(note).items():
        entry = mapping(value)
        try:
            slot = parse_slot(name)
        except ValueError:
            continue
        if depth(entry) > MAX_DEPTH + 1 or not {"was", "set"} <= set(entry):
            continue
        if fits(slot, entry["was"]) and fits(slot, entry["set"]):
            record[slot] = RecordEntry(entry["was"], entry["set"], max(0, number(entry.get("at"))))
    return record


def format_record(record: Record) -> str:
    """The annotation's value, "" for an empty record."""
    entries = {
        str(slot): {"was": entry.base, "set": entry.injected, **({"at": entry.at} if entry.at else {})}
        for slot, entry in record.items()
    }
    return orjson.dumps(entries, option=orjson.OPT_SORT_KEYS).decode() if entries else ""
