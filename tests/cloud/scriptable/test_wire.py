"""The hand-written protobuf, against bytes taken from a real server and against google's own decoder."""

from __future__ import annotations

import pytest
from google.protobuf.wrappers_pb2 import UInt64Value

from tests.cloud.scriptable import wire


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**32, 2**64 - 1])
def test_numbers_are_read_back(number: int) -> None:
    assert UInt64Value.FromString(wire.integer(1, number)).value == number


def test_empty_list_of_a_real_server() -> None:
    """GET /api/v1/persistentvolumes on Kubernetes 1.36, with none there at version 975."""
    body = wire.envelope("v1", "PersistentVolumeList", wire.list_message(975, []))
    assert body == bytes.fromhex(
        "6b38 7300 0a1a 0a02 7631 1214 5065 7273 6973 7465 6e74 566f 6c75 6d65 4c69 7374"
        "120b 0a09 0a00 1203 3937 351a 001a 0022 00"
    )


def test_list_of_items() -> None:
    message = wire.list_message(7, [b"one", b"two"], continue_token="c", remaining=2)
    assert message == b"\x0a\x0a\x0a\x00\x12\x017\x1a\x01c\x20\x02" + b"\x12\x03one" + b"\x12\x03two"


def test_frame_has_its_length_first() -> None:
    frame = wire.frame("ADDED", b"body")
    assert frame == b"\x00\x00\x00\x0f" + b"\x0a\x05ADDED" + b"\x12\x06" + b"\x0a\x04body"


def test_status_of_a_real_server() -> None:
    """GET of a ConfigMap that is not there on Kubernetes 1.36."""
    status = {
        "status": "Failure",
        "message": 'configmaps "zz" not found',
        "reason": "NotFound",
        "details": {"name": "zz", "kind": "configmaps"},
        "code": 404,
    }
    assert wire.envelope("v1", "Status", wire.status_message(status)) == bytes.fromhex(
        "6b38 7300 0a0c 0a02 7631 1206 5374 6174 7573 1251 0a06 0a00 1200 1a00 1207 4661"
        "696c 7572 651a 1963 6f6e 6669 676d 6170 7320 227a 7a22 206e 6f74 2066 6f75 6e64"
        "2208 4e6f 7446 6f75 6e64 2a16 0a02 7a7a 1200 1a0a 636f 6e66 6967 6d61 7073 2800"
        "3200 3094 031a 0022 00"
    )


def test_status_says_its_causes() -> None:
    cause = {"reason": "R", "message": "M", "field": "f"}
    message = wire.status_message({"code": 422, "details": {"causes": [cause], "retryAfterSeconds": 1}})
    assert b"\x22\x09\x0a\x01R\x12\x01M\x1a\x01f\x28\x01\x32\x00" in message
