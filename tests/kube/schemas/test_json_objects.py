"""A protobuf object is the JSON that a kube-apiserver writes of it; malformed bytes are a ValueError, nothing else."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kube.schemas.json_objects import MAX_DEPTH, json_object, shown_object
from kube.wire.encoding import Encoding
from kube.wire.protobuf_codec import delimited
from tests.kube.support import recorded

JSON, PROTOBUF = Encoding.JSON, Encoding.PROTOBUF
CRD = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")


@pytest.mark.parametrize("name", recorded.SINGLES)
def test_an_object_is_what_the_server_writes_as_json(name: str) -> None:
    api_version, kind, raw = recorded.single(name, PROTOBUF)
    assert json_object(api_version, kind, raw) == orjson.loads(recorded.body(name, JSON))


@pytest.mark.parametrize(
    "kind", [("v1", "Pod"), ("v1", "Secret"), ("discovery.k8s.io/v1", "EndpointSlice"), CRD]
)
@given(raw=st.binary())
@example(raw=b"\x0a")
@example(raw=b"\x0a\x05")
@example(raw=b"\x0f\x00")
@example(raw=b"\x80")
@example(raw=b"\x0a\x05\x4a\x03\x08\x80\x80")
def test_malformed_bytes_are_refused(kind: tuple[str, str], raw: bytes) -> None:
    with suppress(ValueError):
        orjson.dumps(json_object(*kind, raw))


@given(cut=st.integers(0), at=st.integers(0), byte=st.integers(0, 255))
def test_a_torn_object_is_refused_or_read(cut: int, at: int, byte: int) -> None:
    api_version, kind, raw = recorded.single("pods.single", PROTOBUF)
    torn = bytearray(raw[: cut % len(raw) + 1])
    torn[at % len(torn)] = byte
    with suppress(ValueError):
        orjson.dumps(shown_object(api_version, kind, bytes(torn)))


def test_an_unknown_protobuf_field_is_shown_by_number_and_size() -> None:
    raw = delimited(b"\x0a", delimited(b"\x0a", b"web")) + b"\xf8\x07\x07" + delimited(b"\x82\x08", b"12345")
    shown = shown_object("v1", "Service", raw)
    assert shown["metadata"] == {"name": "web"}
    assert (shown["field 127"], shown["field 128"]) == (7, "(5 bytes)")
    assert not any(name.startswith("field") for name in json_object("v1", "Service", raw))


def test_an_unknown_kind_is_shown_as_metadata_and_not_converted() -> None:
    raw = delimited(b"\x0a", delimited(b"\x0a", b"web")) + delimited(b"\x12", b"12345")
    shown = shown_object("example.com/v1", "Odd", raw)
    assert shown == {
        "kind": "Odd",
        "apiVersion": "example.com/v1",
        "metadata": {"name": "web"},
        "field 2": "(5 bytes)",
    }
    with pytest.raises(LookupError, match=r"example\.com/v1 Odd"):
        json_object("example.com/v1", "Odd", raw)


def test_a_message_nested_too_deep_is_refused() -> None:
    def nested_schema(levels: int) -> bytes:
        """A CRD whose schema says so many times that it is an array of something."""
        schema = b""
        for _ in range(levels):
            schema = delimited(b"\xc2\x01", delimited(b"\x0a", schema))  # items, of JSONSchemaPropsOrArray
        version = delimited(b"\x0a", b"v1") + delimited(b"\x22", delimited(b"\x0a", schema))
        return delimited(b"\x12", delimited(b"\x3a", version))

    deep = json_object(*CRD, nested_schema(MAX_DEPTH // 2 - 3))
    assert deep["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["items"]["items"]
    with pytest.raises(ValueError, match="messages in each other"):
        json_object(*CRD, nested_schema(MAX_DEPTH * 100))


def test_importing_the_hub_does_not_load_the_messages() -> None:
    program = (
        "import addons.hub, addons.command, addons.ui.admin\n"
        "from kube.schemas.published import messages\n"
        "assert not messages.cache_info().currsize\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
