"""What is special to JSON: any value may be anything, and the order of keys stays."""

from __future__ import annotations

import json

import pytest

from kube.wire.fields import Edits
from kube.wire.json_fields import MAX_DEEP, JsonFields, parse_object, write_json, write_shallow

GARBAGE: list[object] = [None, "", "text", 0, 7, 1.5, True, [], [1, None, {}], {}, {"a": 1}]


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


def test_garbage_among_good_values_is_left_out_and_left_alone() -> None:
    mixed = fields(texts=["a", 1, None, "b"], map={"a": "b", "n": 1, "none": None}, list=[{"a": "b"}, 7, {}])
    assert mixed.texts("texts") == ["a", "b"]
    assert mixed.mapping("map") == {"a": "b"}
    assert mixed.keep("list", lambda child: child.has("a")) == 1
    assert json.loads(mixed.encode())["list"] == [{"a": "b"}, 7]


@pytest.mark.parametrize("value", [*GARBAGE, "absent"])
def test_writing_replaces_garbage(value: object) -> None:
    garbage = JsonFields({} if value == "absent" else {"x": value}, Edits())
    garbage.child("x").set("name", "n")
    assert garbage.child("x").text("name") == "n"
    garbage.set_texts("x", ["a"])
    garbage.add("x").set("b", "c")
    assert json.loads(garbage.encode()) == {"x": ["a", {"b": "c"}]}


def test_numbers_keep_their_value() -> None:
    text = b'{"a":18446744073709551615,"b":-9223372036854775808,"c":2.5,"d":1e+21,"e":100000000000000000000}'
    assert json.loads(write_json(parse_object(text))) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"null", b'"x"', b"{}{}", b'{"a":NaN}', b"\xff", b'{"a":"\xff"}', b"[" * 100000],
)
def test_what_is_no_object_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_object(text)


def nested(levels: int) -> bytes:
    return b'{"a":' * levels + b'"\xc3\xa9"' + b"}" * levels


@pytest.mark.parametrize("levels", [254, 255, 1024, 1025, 1400])
def test_what_a_kube_apiserver_takes_is_read_and_written_however_deep(levels: int) -> None:
    assert write_json(parse_object(nested(levels))) == nested(levels)


def test_what_is_nested_without_end_or_long_besides_is_a_value_error() -> None:
    value: object = 1
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ValueError, match="cannot be written as JSON"):
        write_json(value)
    with pytest.raises(ValueError, match="cannot be read as JSON"):
        parse_object(nested(100_000))
    with pytest.raises(ValueError, match="nested over"):
        parse_object(nested(1025).replace(b"a", b"a" * (MAX_DEEP // 1024)))


def test_nesting_that_is_too_deep_to_walk_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="cannot be written as JSON"):
        write_shallow(parse_object(nested(300)))
