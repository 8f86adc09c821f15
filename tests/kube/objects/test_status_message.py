"""Protobuf messages read as JSON, and written in place: only differences are written, next to fields of newer
servers."""

from __future__ import annotations

from typing import Any

import pytest

from kube.objects.status_message import CORE, new_message, parse_message, read_message, write_message
from kube.objects.strategic_merge import merge_keys_of
from tests.kube.support.wire_walker import find

UNKNOWN = b"\xf2\x7f\x05later"
"""A field that no table has: number 2046, a string."""
NODE_STATUS, CONDITION = f"{CORE}.NodeStatus", f"{CORE}.NodeCondition"
POD_STATUS, CONTAINER = f"{CORE}.PodStatus", f"{CORE}.ContainerStatus"
NODE_KEYS, POD_KEYS = merge_keys_of("Node"), merge_keys_of("Pod")


def with_unknown(name: str, message: Any) -> Any:
    return parse_message(name, message.SerializeToString() + UNKNOWN)


def status(*conditions: str) -> Any:
    """Return a node's status with a newer server's field in itself and in each condition."""
    message = new_message(NODE_STATUS)
    message.phase = "Running"
    for condition in conditions:
        element = new_message(CONDITION)
        element.type, element.status = condition, "True"
        message.conditions.append(with_unknown(CONDITION, element))
    return with_unknown(NODE_STATUS, message)


def test_writing_the_same_content_changes_nothing() -> None:
    message = status("Ready")
    before = message.SerializeToString()
    write_message(NODE_STATUS, message, read_message(NODE_STATUS, message), NODE_KEYS, "status")
    assert message.SerializeToString() == before


def test_retained_list_elements_preserve_unknown_fields() -> None:
    message = status("Ready", "Gone", "Other")
    document = read_message(NODE_STATUS, message)
    ready, _, other = document["conditions"]
    new = {**ready, "type": "New", "status": "Unknown"}
    document["conditions"] = [
        other,
        new,
        {**ready, "status": "False", "lastHeartbeatTime": "1970-01-01T00:00:00Z"},
    ]
    write_message(NODE_STATUS, message, document, NODE_KEYS, "status")
    assert read_message(NODE_STATUS, message) == document
    raw = message.SerializeToString()
    assert raw.endswith(UNKNOWN)
    has_unknown = [UNKNOWN in each for each in find(raw, 4)]
    assert has_unknown == [True, False, True]


def test_map_entries_are_added_changed_and_removed() -> None:
    message = new_message(NODE_STATUS)
    for name in ("cpu", "pods", "gone"):
        entry = message.capacity.add(key=name)
        entry.value.string = "1"
    message.capacity[0].MergeFromString(UNKNOWN)
    document = read_message(NODE_STATUS, message)
    document["capacity"] = {"cpu": "2", "new": "3", "pods": "1"}
    write_message(NODE_STATUS, message, document, NODE_KEYS, "status")
    assert read_message(NODE_STATUS, message) == document
    assert [UNKNOWN in each for each in find(message.SerializeToString(), 1)] == [True, False, False]


def test_absent_and_zero_values_are_distinguished() -> None:
    message = new_message(CONTAINER)
    full = {"name": "a", "ready": False, "restartCount": 0, "image": "", "imageID": "", "lastState": {}}
    document = {**full, "state": {"running": {"startedAt": None}}, "started": False}
    write_message(CONTAINER, message, document, POD_KEYS, "status.containerStatuses")
    assert read_message(CONTAINER, message) == document
    assert message.HasField("started")
    write_message(CONTAINER, message, {**full, "state": {}}, POD_KEYS, "status.containerStatuses")
    assert not message.HasField("started")
    assert read_message(CONTAINER, message) == {**full, "state": {}}


def test_times_are_read_and_written_as_json() -> None:
    message = new_message(POD_STATUS)
    for text, wire in (("1970-01-01T00:00:00Z", b"\x08\x00\x10\x00"), (None, None)):
        write_message(POD_STATUS, message, {"startTime": text}, POD_KEYS, "status")
        assert find(message.SerializeToString(), 7) == ([wire] if wire else [])
    message.startTime.seconds, message.startTime.nanos = 5, 9
    write_message(
        POD_STATUS, message, {"startTime": "1970-01-01T00:00:05Z", "phase": "x"}, POD_KEYS, "status"
    )
    assert message.startTime.nanos == 9


def test_a_string_that_is_not_utf8_is_preserved() -> None:
    message = parse_message(POD_STATUS, b"\x1a\x01\xff")
    document = read_message(POD_STATUS, message)
    assert document == {"message": "\ufffd"}
    write_message(POD_STATUS, message, {**document, "phase": "x"}, POD_KEYS, "status")
    assert message.SerializeToString() == b"\x0a\x01x\x1a\x01\xff"


def test_a_time_beyond_the_range_of_json_is_preserved() -> None:
    message = new_message(POD_STATUS)
    message.startTime.seconds = 2**62
    with pytest.raises(ValueError, match="no time"):
        read_message(POD_STATUS, message)
