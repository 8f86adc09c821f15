"""The contract of the Fields interface in both encodings, which give equal values for equal objects."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.wire.api_objects import ApiObject, decode_object
from kube.wire.encoding import Encoding
from kube.wire.fields import Fields
from kube.wire.schema import FieldKind, MessageType, message_type_of
from tests.kube.support.recorded import SINGLES, obj, single

SLICE = "endpointslices.single"
NO_POINTERS = {"publishNotReadyAddresses"}
"""Fields without a pointer in the Go type: protobuf has false where JSON has no value."""
TARGET_PORT = "targetPort"
"""A message in protobuf; a number or string in JSON."""


def view(fields: Fields, message: MessageType) -> dict[str, object]:
    """Return all known fields of a message, in the order of the interface."""
    return {name: _read(fields, name, kind, message) for name, kind in message.kinds.items()}


def _read(fields: Fields, name: str, kind: FieldKind, message: MessageType) -> object:
    match kind:
        case FieldKind.TEXT:
            return fields.has(name), fields.text(name)
        case FieldKind.TEXTS:
            return fields.has(name), fields.texts(name)
        case FieldKind.NUMBER:
            return fields.has(name), fields.number(name)
        case FieldKind.FLAG:
            return bool(fields.flag(name)) if name in NO_POINTERS else (fields.has(name), fields.flag(name))
        case FieldKind.MAPPING:
            return fields.has(name), list(fields.mapping(name).items())
        case FieldKind.CHILDREN:
            return fields.has(name), [view(child, message.children[name]) for child in fields.children(name)]
        case FieldKind.CHILD if name != TARGET_PORT:
            return fields.has(name), view(fields.child(name), message.children[name])
        case _:
            return fields.has(name)


def encoded_and_decoded(obj: ApiObject) -> Fields:
    """Encode an object and decode it again."""
    return decode_object(obj.encoding, obj.api_version, obj.kind, obj.encode()).fields


@pytest.mark.parametrize("name", SINGLES)
def test_both_encodings_have_equal_fields(name: str) -> None:
    api_version, kind, _ = single(name, Encoding.JSON)
    message = message_type_of(api_version, kind)
    in_json = view(obj(name, Encoding.JSON).fields, message)
    assert in_json == view(obj(name, Encoding.PROTOBUF).fields, message)
    if kind != "Status":
        assert in_json["metadata"] != (False, {})


def test_fields_of_each_type_are_read(encoding: Encoding) -> None:
    fields = obj(SLICE, encoding).fields
    assert fields.text("addressType") == "IPv4"
    first, second, third = fields.children("endpoints")
    assert first.texts("addresses") == ["10.0.0.1"]
    conditions = [endpoint.child("conditions").flag("ready") for endpoint in (first, second, third)]
    assert conditions == [True, False, None]
    assert [port.number("port") for port in fields.children("ports")] == [8080, 5353]
    assert (fields.count("ports"), fields.count("metadata"), fields.count("nobody")) == (2, 0, 0)
    assert next(iter(fields.child("metadata").mapping("labels").items())) == ("changed", "yes")


def test_an_absent_field_reads_as_empty(encoding: Encoding) -> None:
    fields = obj(SLICE, encoding).fields
    for name in ("subsets", "nobody"):
        assert (fields.text(name), fields.number(name), fields.flag(name)) == ("", 0, None)
        assert (fields.texts(name), fields.mapping(name), fields.children(name)) == ([], {}, [])
        assert fields.child(name).child(name).text(name) == ""
        assert not fields.has(name)


def test_a_field_of_another_type_reads_as_absent(encoding: Encoding) -> None:
    fields = obj(SLICE, encoding).fields
    assert (fields.text("endpoints"), fields.number("addressType"), fields.flag("metadata")) == ("", 0, None)
    assert (fields.texts("endpoints"), fields.mapping("endpoints")) == ([], {})
    assert (fields.children("metadata"), fields.child("addressType").text("name")) == ([], "")


def test_scalar_fields_are_written(encoding: Encoding) -> None:
    service = obj("services.single", encoding)
    spec = service.fields.child("spec")
    spec.set("clusterIP", "192.0.2.1")
    spec.children("ports")[0].set("nodePort", 30000)
    spec.set_texts("clusterIPs", ["192.0.2.1", "2001:db8::1"])
    written = encoded_and_decoded(service).child("spec")
    assert written.text("clusterIP") == "192.0.2.1"
    assert written.texts("clusterIPs") == ["192.0.2.1", "2001:db8::1"]
    assert written.children("ports")[0].number("nodePort") == 30000
    assert written.children("ports")[1].text("name") == "dns"


def test_writing_to_an_absent_child_creates_it(encoding: Encoding) -> None:
    slice_object = obj(SLICE, encoding)
    third = slice_object.fields.children("endpoints")[2]
    first_handle, second_handle = third.child("conditions"), third.child("conditions")
    first_handle.set("ready", False)
    second_handle.set("serving", True)
    conditions = encoded_and_decoded(slice_object).children("endpoints")[2].child("conditions")
    assert (conditions.flag("ready"), conditions.flag("serving")) == (False, True)


def test_writing_to_a_nested_absent_child_creates_its_parents(encoding: Encoding) -> None:
    raw = b"{}" if encoding is Encoding.JSON else b""
    pod = decode_object(encoding, "v1", "Pod", raw)
    pod.fields.child("metadata").set_mapping("labels", {"b": "1", "a": "2"})
    container = pod.fields.child("spec").add("containers")
    container.add("env").set("name", "A")
    container.add("env").set("name", "B")
    written = encoded_and_decoded(pod)
    assert list(written.child("metadata").mapping("labels").items()) == [("b", "1"), ("a", "2")]
    assert [env.text("name") for env in written.child("spec").children("containers")[0].children("env")] == [
        "A",
        "B",
    ]


def test_reading_an_absent_child_creates_nothing(encoding: Encoding) -> None:
    slice_object = obj(SLICE, encoding)
    before = slice_object.encode()
    slice_object.fields.children("endpoints")[2].child("conditions").flag("ready")
    assert slice_object.encode() is before


@given(values=st.dictionaries(st.text(), st.text(), max_size=5), encoding=st.sampled_from(Encoding))
def test_a_mapping_preserves_its_order(values: dict[str, str], encoding: Encoding) -> None:
    config = obj("configmaps.single", encoding)
    config.fields.set_mapping("data", values)
    assert list(encoded_and_decoded(config).mapping("data").items()) == list(values.items())
    assert encoded_and_decoded(config).has("data") == bool(values)


def test_a_mapping_is_a_copy(encoding: Encoding) -> None:
    config = obj("configmaps.single", encoding)
    config.fields.mapping("data")["a"] = "changed"
    assert config.fields.mapping("data") == {"a": "line\nline\n", "empty": "", "z": "\u4e16"}


@pytest.mark.parametrize("addresses", [set(), {"10.0.0.1"}, {"10.0.0.2"}, {"10.0.0.1", "10.0.0.3"}])
def test_keep_retains_the_selected_list_elements(addresses: set[str], encoding: Encoding) -> None:
    slice_object = obj(SLICE, encoding)
    removed = slice_object.fields.keep(
        "endpoints", lambda endpoint: endpoint.texts("addresses")[0] in addresses
    )
    assert removed == 3 - len(addresses)
    assert {
        e.texts("addresses")[0] for e in encoded_and_decoded(slice_object).children("endpoints")
    } == addresses


def test_a_child_seen_before_keep_can_still_be_written(encoding: Encoding) -> None:
    slice_object = obj(SLICE, encoding)
    third = slice_object.fields.children("endpoints")[2]
    slice_object.fields.keep("endpoints", lambda endpoint: endpoint.text("nodeName") != "n1")
    third.set("nodeName", "n9")
    assert [e.text("nodeName") for e in encoded_and_decoded(slice_object).children("endpoints")] == [
        "n2",
        "n9",
    ]


def test_fields_are_cleared_and_elements_added(encoding: Encoding) -> None:
    slice_object = obj(SLICE, encoding)
    slice_object.fields.clear("endpoints")
    slice_object.fields.add("endpoints").set_texts("addresses", ["192.0.2.9"])
    slice_object.fields.child("metadata").clear("labels")
    written = encoded_and_decoded(slice_object)
    assert [endpoint.texts("addresses") for endpoint in written.children("endpoints")] == [["192.0.2.9"]]
    assert not written.child("metadata").has("labels")
    assert written.text("addressType") == "IPv4"


@pytest.mark.parametrize(
    "act",
    [
        lambda fields: fields.keep("endpoints", lambda endpoint: True),
        lambda fields: fields.child("metadata").clear("annotations"),
        lambda fields: fields.children("endpoints")[2].child("conditions").clear("ready"),
        lambda fields: fields.child("metadata").set_mapping("annotations", {}),
    ],
)
def test_an_edit_without_effect_leaves_the_bytes_unmodified(
    act: Callable[[Fields], object], encoding: Encoding
) -> None:
    slice_object = obj(SLICE, encoding)
    before = slice_object.encode()
    act(slice_object.fields)
    assert slice_object.encode() is before
