"""Peculiarities of JSON: any value may have any type, the order of keys is preserved, and managedFields may stay
text."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable

import msgspec
import pytest

from kube.json_type import Json
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from kube.wire.fields import Edits
from kube.wire.json_fields import (
    LONG_OBJECT,
    JsonFields,
    parse_object,
    parse_object_lazily,
    write_json,
    write_shallow,
)

GARBAGE: list[object] = [None, "", "text", 0, 7, 1.5, True, [], [1, None, {}], {}, {"a": 1}]

CODEC = codec_for(Encoding.JSON)
FIELDS = 6_000
"""Fields that make an object's managedFields longer than LONG_OBJECT bytes."""


def fields(**values: object) -> JsonFields:
    return JsonFields(dict(values), Edits())


@pytest.mark.parametrize("value", GARBAGE)
def test_a_wrong_type_reads_as_absent(value: object) -> None:
    garbage = fields(x=value)
    assert garbage.text("x") == (value if isinstance(value, str) else "")
    assert garbage.number("x") == (value if isinstance(value, int) and value is not True else 0)
    assert garbage.flag("x") is (True if value is True else None)
    assert garbage.texts("x") == []
    assert garbage.mapping("x") == {}
    assert [child.text("a") for child in garbage.children("x")] == ([""] if value == [1, None, {}] else [])
    assert garbage.child("x").text("a") == ""


def test_malformed_values_are_skipped_when_read_and_preserved() -> None:
    mixed = fields(texts=["a", 1, None, "b"], map={"a": "b", "n": 1, "none": None}, list=[{"a": "b"}, 7, {}])
    assert mixed.texts("texts") == ["a", "b"]
    assert mixed.mapping("map") == {"a": "b"}
    assert mixed.keep("list", lambda child: child.has("a")) == 1
    assert json.loads(mixed.encode())["list"] == [{"a": "b"}, 7]


@pytest.mark.parametrize("value", [*GARBAGE, "absent"])
def test_writing_replaces_a_malformed_value(value: object) -> None:
    garbage = JsonFields({} if value == "absent" else {"x": value}, Edits())
    garbage.child("x").set("name", "n")
    assert garbage.child("x").text("name") == "n"
    garbage.set_texts("x", ["a"])
    garbage.add("x").set("b", "c")
    assert json.loads(garbage.encode()) == {"x": ["a", {"b": "c"}]}


def test_numbers_retain_their_value() -> None:
    text = b'{"a":18446744073709551615,"b":-9223372036854775808,"c":2.5,"d":1e+21,"e":100000000000000000000}'
    assert json.loads(write_json(parse_object(text))) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"null", b'"x"', b"{}{}", b'{"a":NaN}', b"\xff", b'{"a":"\xff"}', b"[" * 100000],
)
def test_a_malformed_json_object_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_object(text)


def nested(levels: int) -> bytes:
    return b'{"a":' * levels + b'"\xc3\xa9"' + b"}" * levels


@pytest.mark.parametrize("levels", [254, 255, 1024, 1025, 1400])
def test_json_is_read_and_written_to_kube_apiservers_nesting_depth(levels: int) -> None:
    assert write_json(parse_object(nested(levels))) == nested(levels)


def test_json_nested_beyond_the_limit_is_a_value_error() -> None:
    value: object = 1
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ValueError, match="cannot be written as JSON"):
        write_json(value)
    with pytest.raises(ValueError, match="cannot be read as JSON"):
        parse_object(nested(100_000))


def test_nesting_that_is_too_deep_to_walk_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="cannot be written as JSON"):
        write_shallow(parse_object(nested(300)))


def managed(**more: object) -> list[Json]:
    fields: Json = {f'k:{{"name":"with\\tmany \\"words\\" {number}"}}': {".": {}} for number in range(FIELDS)}
    return [
        {"manager": "a", "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": fields}, **more}},
        {"manager": "b", "fieldsV1": {}},
    ]


def text_of(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def an_object(entries: object, **more: object) -> bytes:
    metadata = {"name": "a", "namespace": "b", "resourceVersion": "7", "managedFields": entries}
    return text_of({"kind": "Service", "apiVersion": "v1", "metadata": metadata, **more})


def is_text(value: Json) -> bool:
    metadata = value["metadata"]
    assert isinstance(metadata, dict)
    return isinstance(metadata["managedFields"], msgspec.Raw)


def in_events(raw: bytes) -> bytes:
    (frame,) = CODEC.frames().feed(b'{"type":"MODIFIED","object":%b}\n' % raw)
    assert frame.peek is not None
    assert (frame.peek.name, frame.peek.version) == ("a", 7)
    return frame.raw


def in_lists(raw: bytes) -> bytes:
    head = b'{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":['
    short = an_object([], spec={})
    found: list[bytes] = []
    for items in ([raw], [short, raw, raw], [short, *[raw] * (1024 * 1024 // LONG_OBJECT), short]):
        found += CODEC.decode_list(head + b",".join(items) + b"]}\n").items
    assert set(found) == {short, raw}
    return raw


def in_copies(raw: bytes) -> bytes:
    assert CODEC.peek(raw).namespace == "b"
    made = CODEC.with_version(raw, 8)
    assert CODEC.peek(made).version == 8
    return CODEC.with_version(made, 7)


@pytest.mark.parametrize("round_trip", [in_events, in_lists, in_copies])
def test_the_text_of_an_unchanged_object_is_retained(round_trip: Callable[[bytes], bytes]) -> None:
    raw = an_object(managed(), spec={"ü": ["managedFields", 1, None]})
    assert len(raw) > LONG_OBJECT
    assert is_text(parse_object_lazily(raw))
    assert round_trip(raw) == raw


def test_an_event_takes_little_more_memory_than_its_bytes() -> None:
    raw = an_object([{"fieldsV1": {f"f:{number}": {} for number in range(60_000)}}])
    reader = CODEC.frames()
    event = b'{"type":"MODIFIED","object":%b}\n' % raw
    tracemalloc.start()
    try:
        reader.feed(event)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 10 * len(event), "with an object for each field it is fifty times as much"


@pytest.mark.parametrize(
    "raw",
    [
        an_object(managed(number=1)),
        an_object(managed(empty=None)),
        an_object(managed(word="ü")),
        an_object(managed(word="/")).replace(b'"/"', rb'"\/"'),
        an_object(managed(), spec={}).replace(b'"managedFields":[', b'"managedFields":[ '),
        an_object([], spec={"metadata": {"managedFields": managed()}}),
        an_object(managed(deep=parse_object(nested(20).replace(b"\xc3\xa9", b"x")))),
        an_object(managed())[:-10],
        an_object(managed()).replace(b'"f:labels":{', b'"f:labels":{,'),
        an_object(managed()).replace(b"{}}", b"{},}"),
        an_object(managed()).replace(b'"manager":"a"', b'"manager" "a"'),
        an_object(managed()).replace(b'"a",', b'"a\n",'),
        an_object(managed()).replace(b'"a",', b'"\xff",'),
        an_object(managed()) + b"}",
    ],
)
def test_json_in_an_unusual_form_is_read_lazily_with_the_same_result(raw: bytes) -> None:
    """The reader cannot skip managedFields in it, or it is no JSON."""
    try:
        expected = parse_object(raw)
    except ValueError:
        with pytest.raises(ValueError, match=r"."):
            parse_object_lazily(raw)
    else:
        assert parse_object(write_json(parse_object_lazily(raw))) == expected


def test_an_object_too_deep_for_the_fast_encoder_retains_its_fields() -> None:
    raw = an_object(managed(), spec=parse_object(nested(300)))
    assert is_text(parse_object_lazily(raw))
    assert json.loads(write_json(parse_object_lazily(raw))) == json.loads(raw)
