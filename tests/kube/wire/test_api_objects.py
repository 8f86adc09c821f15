"""Objects: their identity, and the unchanged bytes of an object without writes."""

from __future__ import annotations

import json

import pytest

from kube.wire.api_objects import decode_object
from kube.wire.encoding import Encoding
from tests.kube.support.recorded import SINGLES, obj, single


@pytest.mark.parametrize("name", SINGLES)
def test_an_object_that_was_only_read_has_the_same_bytes(name: str, encoding: Encoding) -> None:
    api_version, kind, raw = single(name, encoding)
    read = decode_object(encoding, api_version, kind, raw)
    assert (read.api_version, read.kind, read.encoding) == (api_version, kind, encoding)
    assert (read.namespace, read.labels, read.annotations, read.uid) == (
        read.fields.child("metadata").text("namespace"),
        read.fields.child("metadata").mapping("labels"),
        read.fields.child("metadata").mapping("annotations"),
        read.fields.child("metadata").text("uid"),
    )
    assert read.encode() is raw


def test_identity_fields_of_an_object_are_read(encoding: Encoding) -> None:
    service = obj("services.single", encoding)
    assert (service.name, service.namespace) == ("rich", "fixtures")
    assert len(service.uid) == 36
    assert service.version > 1
    assert service.labels == {"app": "web", "changed": "yes", "tier": "front"}
    assert service.annotations["quoted"] == '{"a": [1, 2]}\n<&>'


@pytest.mark.parametrize(
    ("text", "version"), [("", 0), ("0", 0), ("7", 7), ("07", 0), ("x", 0), ("-1", 0), (str(2**64), 0)]
)
def test_the_resource_version_is_read_as_a_number(text: str, version: int, encoding: Encoding) -> None:
    service = obj("services.single", encoding)
    service.fields.child("metadata").set("resourceVersion", text)
    assert service.version == version


def test_a_write_to_a_json_object_changes_only_that_field() -> None:
    service = obj("services.single", Encoding.JSON)
    before = json.loads(service.encode())
    service.fields.child("spec").set("clusterIP", "192.0.2.1")
    before["spec"]["clusterIP"] = "192.0.2.1"
    assert json.loads(service.encode()) == before
    assert list(json.loads(service.encode())["metadata"]) == list(before["metadata"])


@pytest.mark.parametrize("raw", [b"\x0a\xff", b"{", b'{"a"', b"[1]"])
def test_malformed_bytes_are_a_value_error(raw: bytes, encoding: Encoding) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_object(encoding, "v1", "Service", raw)
