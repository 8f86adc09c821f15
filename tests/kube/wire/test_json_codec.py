"""The JSON encoding: omitted fields of list items, long lists in parts, and deeply nested objects."""

from __future__ import annotations

import json
from unittest.mock import patch

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.packed_text import PackedText
from kube.wire import json_codec
from kube.wire.codec_base import ListMeta, ListPage, ObjectPeek
from kube.wire.encoding import Encoding
from kube.wire.json_codec import JsonCodec
from kube.wire.json_fields import parse_object, read_json
from tests.kube.support.recorded import STREAMS, body, single

CODEC = JsonCodec()


@pytest.mark.parametrize("packing", [1, 10_000])
def test_items_of_custom_resources_retain_their_kind(packing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """kube-apiserver sorts their fields, in lists and in events."""
    monkeypatch.setattr("kube.packed_text.COMPRESSION_THRESHOLD", packing)
    item = b'{"apiVersion":"x/v2","kind":"Other","metadata":{"name":"a"}}'
    body = b'{"apiVersion":"x/v1","items":[%b],"kind":"OtherList","metadata":{}}' % item
    assert CODEC.decode_list(body).items == [item]
    listed = CODEC.encode_list("x/v2", "Other", ListMeta(7), [CODEC.stored(item), CODEC.stored(item)])
    assert len(bytes(listed)) == listed.size
    assert json.loads(bytes(listed))["items"] == [json.loads(item)] * 2


@pytest.mark.parametrize(
    "inside", [b'"a":"\\u003c\xc3\xa9"', b'"a":1E3,"b":1e999', b'"a":1,"a":2', b'"a": [1, 2]']
)
def test_objects_retain_the_servers_text(inside: bytes) -> None:
    head = b'{"kind":"Service","apiVersion":"v1",'
    text = b'{"kind":"ServiceList","apiVersion":"v1","items":[{%b},{%b}]}' % (inside, inside)
    assert CODEC.decode_list(text).items == [head + inside + b"}"] * 2
    assert isinstance(page := in_parts(text, 1), ListPage)
    assert page.items == [head + inside + b"}"] * 2
    event = b'{"object":%b%b},"type":"ADDED"}\n' % (head, inside)
    (frame,) = CODEC.frames().feed(event)
    assert frame.raw == head + inside + b"}"


def test_a_list_whose_items_are_null_is_empty() -> None:
    page = CODEC.decode_list(
        b'{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":null}'
    )
    assert (page.version, page.items) == (7, [])


@pytest.mark.parametrize("items", [b'{"a":1}', b'"x"', b"[1]", b"[null]", b"7"])
def test_list_items_that_are_no_objects_are_refused(items: bytes) -> None:
    with pytest.raises(ValueError, match=r"Expected `(object|array)"):
        CODEC.decode_list(b'{"kind":"ServiceList","apiVersion":"v1","items":%b}' % items)


@pytest.mark.parametrize("name", STREAMS)
def test_encoded_frames_contain_the_servers_objects(name: str) -> None:
    stream = body(name, Encoding.JSON)
    ours = [CODEC.encode_event(*frame[:4]) for frame in CODEC.frames().feed(stream)]
    assert [json.loads(frame) for frame in ours] == [json.loads(line) for line in stream.splitlines()]
    assert [frame.count(b"\n") for frame in ours] == [1] * len(ours)


def test_an_indented_body_is_encoded_on_one_line() -> None:
    api_version, kind, raw = single("services.single", Encoding.JSON)
    indented = json.dumps(json.loads(raw), indent=4).replace("\n", "\r\n").encode()
    assert CODEC.decode_single(indented)[:2] == (api_version, kind)
    line = CODEC.decode_single(indented)[2]
    assert json.loads(line) == json.loads(raw)
    assert b"\n" not in line


@pytest.mark.parametrize("body", [b"{}", b'{"kind":"C"}', b'{"apiVersion":"v1","kind":null}'])
def test_an_object_must_have_its_type(body: bytes) -> None:
    with pytest.raises(ValueError, match="must have apiVersion and kind"):
        CODEC.decode_single(body)


@pytest.mark.parametrize("metadata", [b"null", b"7", b"[]", b'{"labels":7,"name":[]}'])
def test_metadata_of_a_wrong_type_reads_as_absent(metadata: bytes) -> None:
    raw = b'{"kind":"C","apiVersion":"v1","metadata":%b}' % metadata
    assert CODEC.peek(raw) == ("", "", 0, {})
    assert json.loads(CODEC.with_version(raw, 7))["metadata"]["resourceVersion"] == "7"
    assert json.loads(CODEC.metadata_only(raw))["kind"] == "PartialObjectMetadata"


# -- long lists ----------------------------------------------------------------------------------------------------

TEXTS = st.text(st.sampled_from('{}[],:"\\ aé\u2028\x00'), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS | st.just("items"), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from(("metadata", "items", "spec")) | TEXTS, VALUES, max_size=3)
TYPE = {"kind": "Thing", "apiVersion": "v1"}
LIST = {"kind": "ThingList", "apiVersion": "v1", "metadata": {"resourceVersion": "5"}}


def in_parts(text: bytes, part: int) -> ListPage[bytes] | type[ValueError]:
    with patch.multiple(json_codec, LONG_LIST=0, PART=part):
        return decoded(text)


def decoded(text: bytes) -> ListPage[bytes] | type[ValueError]:
    try:
        return CODEC.decode_list(text)
    except ValueError:
        return ValueError


def test_a_list_in_parts_has_the_metadata_of_its_items() -> None:
    labels = {"a": "b", "z": "\u4e16"}
    every: list[dict[str, object]] = [
        {"metadata": {"name": "a", "namespace": "n", "resourceVersion": "7", "labels": labels, "uid": "u"}},
        {"metadata": {"name": "b", "labels": None}},
        {"metadata": {"name": "c", "labels": {"x": 1}}},
        {"metadata": {"name": "d", "resourceVersion": "no version"}},
        {"metadata": 5},
        {},
    ]
    page = CODEC.decode_list(orjson.dumps(LIST | {"items": every}))
    assert page.peeks == [ObjectPeek("n", "a", 7, labels), ObjectPeek("", "b", 0, {}), *[None] * 4]


@given(
    st.lists(OBJECTS, max_size=6),
    st.booleans(),
    st.booleans(),
    st.sampled_from((None, 1)),
    st.sampled_from((1, 40, 200)),
    st.data(),
)
def test_a_list_parsed_in_parts_equals_the_list_parsed_at_once(
    items: list[dict[str, object]],
    sort: bool,
    ascii_only: bool,
    indent: int | None,
    part: int,
    data: st.DataObject,
) -> None:
    @settings(max_examples=100)
    def peeked(raw: bytes) -> object:
        try:
            return CODEC.peek(raw)
        except ValueError:
            return ValueError

    # After its items, kube-apiserver writes the kind of a list of custom resources, whose items have their own.
    page = {**LIST, "items": [TYPE | item for item in items] if sort else items}
    separators = (",", ":") if indent is None else None
    text = json.dumps(
        page, sort_keys=sort, ensure_ascii=ascii_only, indent=indent, separators=separators
    ).encode()
    at_once = CODEC.decode_list(text)
    assert [parse_object(raw) for raw in at_once.items] == [TYPE | item for item in items]
    for raw, peek in zip(at_once.items, at_once.peeks, strict=True):
        assert peek in (None, peeked(raw))
    assert in_parts(text, part) == at_once
    assert in_parts(text, 10**6) == at_once
    # Truncated, changed or repeated parts are parsed equally or refused; invalid JSON is refused.
    begin, end = sorted(data.draw(st.lists(st.integers(0, len(text)), min_size=2, max_size=2)))
    to = data.draw(st.integers(0, len(text)))
    sign = data.draw(st.sampled_from([b"[", b"]", b"{", b"}", b",", b'"', b"\\", b"\xff", b" "]))
    for garbled in (
        text[:end],
        text[:begin] + text[end:],
        text[:to] + text[begin:end] + text[to:],
        text[:begin] + sign + text[begin:],
    ):
        assert in_parts(garbled, part) in (decoded(garbled), ValueError)
        try:
            orjson.loads(garbled)
        except ValueError:
            assert decoded(garbled) is ValueError


ITEM = b'{"metadata":{"name":"x"}}'
HEAD = b'{"kind":"ThingList","apiVersion":"v1",'


@pytest.mark.parametrize(
    "text",
    [
        HEAD + b'"items":[%b,%b,],"metadata":{}}' % (ITEM, ITEM),
        HEAD + b'"items":[,%b]}' % ITEM,
        HEAD + b'"items":[%b %b]}' % (ITEM, ITEM),
        HEAD + b'"items":[%b,%b}}' % (ITEM, ITEM),
        HEAD + b'"items":[%b,5]}' % ITEM,
        HEAD + b'"items":[%b,{"metadata":{}}],"more":[%b,%b]}' % (ITEM, ITEM, ITEM),
        HEAD + b'"items":[%b],[%b,%b]}' % (ITEM, ITEM, ITEM),
        HEAD + b'"items":[{"a":' + b"[" * 1021 + b"]" * 1021 + b"}]}",
        HEAD + b'"items":[{"a":' + b"[" * 252 + b"]" * 252 + b"}]}",
        b'{"kind":"Thing","apiVersion":"v1","items":[%b]}' % ITEM,
        b'{"apiVersion":"v1","items":[%b],"kind":"ThingList"}' % ITEM,
        b"[%b]" % ITEM,
        b"",
    ],
)
@pytest.mark.parametrize("part", [1, 30, 10**6])
def test_unusual_forms_of_a_list_are_parsed_equally_in_parts(text: bytes, part: int) -> None:
    assert in_parts(text, part) == decoded(text)


@pytest.mark.parametrize(
    "text",
    [
        HEAD + b'"items":[%b],"items":[%b,%b]}' % (ITEM, ITEM, ITEM),
        HEAD + b'"items":[%b],"items":null}' % ITEM,
        HEAD + b'"items":[%b],"\\u0069tems":[]}' % ITEM,
        HEAD + b'"metadata":{"items":[%b]},"items":[%b]}' % (ITEM, ITEM),
        HEAD + b'"items":[%b],"kind":"OtherList"}' % ITEM,
        b'{"items":null,"kind":"ThingList"}',
        HEAD + b'"items":[{"a":"%b"}]}' % (b"x" * json_codec.MAX_PART),
    ],
)
def test_unusual_forms_of_a_long_list_are_refused(text: bytes) -> None:
    """kube-apiserver writes no such list."""
    assert in_parts(text, 1) is ValueError


@pytest.mark.parametrize("levels", [255, 1030, 1400])
@pytest.mark.parametrize("long_list", [0, json_codec.LONG_LIST])
def test_a_deeply_nested_object_affects_neither_its_list_nor_its_watch(levels: int, long_list: int) -> None:
    """A single custom resource with 254 nested levels once made lists of its kind fail with 503."""
    deep = b'{"metadata":{"name":"deep","resourceVersion":"7"},"spec":%b}' % (
        b'{"a":' * levels + b"1" + b"}" * levels
    )
    with patch.multiple(json_codec, LONG_LIST=long_list, PART=30):
        page = CODEC.decode_list(HEAD + b'"items":[%b,%b,%b]}' % (ITEM, deep, ITEM))
    assert [CODEC.peek(raw).name for raw in page.items] == ["x", "deep", "x"]
    assert page.items[1].endswith(deep[1:])
    (frame,) = CODEC.frames().feed(CODEC.encode_event("ADDED", "v1", "Thing", page.items[1]))
    assert frame.raw == page.items[1]
    assert CODEC.peek(CODEC.with_version(frame.raw, 9)).version == 9
    assert CODEC.peek(CODEC.metadata_only(frame.raw)).name == "deep"


@pytest.mark.parametrize("long_list", [0, json_codec.LONG_LIST])
@pytest.mark.parametrize("part", [60, 10**6])
def test_an_object_nested_beyond_the_parser_is_hidden_and_reported(
    long_list: int, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached: list[str] = []
    monkeypatch.setattr(json_codec, "reached", reached.append)
    text = b'{"a":' * 50_000 + b"1" + b"}" * 50_000
    with patch.multiple(json_codec, LONG_LIST=long_list, PART=part):
        for deep in ([text], [text, ITEM], [ITEM, text], [ITEM, text, text, ITEM]):
            page = CODEC.decode_list(HEAD + b'"items":[%b]}' % b",".join(deep))
            assert len(page.items) == deep.count(ITEM)
    assert reached == ["depth of an object"] * 5
    with pytest.raises(ValueError, match="read as JSON"):
        CODEC.frames().feed(b'{"type":"ADDED","object":%b}\n' % text)


@pytest.mark.parametrize("sort", [False, True])
def test_a_long_list_is_split_in_parts(sort: bool) -> None:
    """A text that splits into millions of items takes a hundred times its bytes before the items can be counted."""
    notes = {"annotations": {"a": '},{"metadata"'}}
    items = [
        {"metadata": {"name": f"x{number}", **notes}} | (TYPE if sort else {}) for number in range(2_500)
    ]
    text = json.dumps({**LIST, "items": items}, sort_keys=sort, separators=(",", ":")).encode()
    with (
        patch.multiple(json_codec, LONG_LIST=1000, PART=1000),
        patch.object(json_codec, "read_json", wraps=read_json) as read,
    ):
        assert len(CODEC.decode_list(text).items) == len(items)
    assert max(len(call.args[1]) for call in read.call_args_list) < 2000


def test_nested_objects_are_not_treated_as_items() -> None:
    inner = b",".join([b'{"metadata":{}}'] * 2000)
    item = b'{"metadata":{"name":"x"},"spec":[%b]}' % inner
    text = HEAD + b'"items":[%b]}' % b",".join([item] * 20)
    with patch.object(json_codec, "read_json", wraps=read_json) as read:
        assert in_parts(text, 100) == decoded(text)
    assert sum(len(call.args[1]) for call in read.call_args_list) < 6 * len(text)


BOMBS = {
    "no JSON": bytes(5000),
    "an object": HEAD + b'"items":[{"a":"' + b"x" * 5000 + b'"}]}',
    "empty objects": HEAD + b'"items":[{}' + b",{}" * 2000 + b"]}",
    "empty objects apart": HEAD + b'"items":[{"a":1}' + b" ,{}" * 2000 + b"]}",
    "brackets": HEAD + b'"items":[' + b"[" * 5000,
    "numbers before the kind": b'{"apiVersion":"v1","items":[0' + b",0" * 2500 + b'],"kind":"ThingList"}',
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_a_list_of_millions_of_tiny_items_is_not_split_at_once(text: bytes) -> None:
    """240 MiB of each are 240 KB compressed, and 80 million items."""
    with (
        patch.multiple(json_codec, LONG_LIST=1000, PART=300, MAX_PART=2000, MAX_ITEMS=500),
        patch.object(json_codec, "read_json", wraps=read_json) as read,
        pytest.raises(ValueError, match=r"."),
    ):
        CODEC.decode_list(text)
    assert max((len(call.args[1]) for call in read.call_args_list[1:]), default=0) < 2000


def test_a_text_that_is_no_utf_8_is_refused() -> None:
    text = HEAD + b'"items":[{"a":"\xff"}]}'
    assert decoded(text) is in_parts(text, 1) is ValueError


@pytest.mark.parametrize("long_list", [0, 1 << 30])
def test_items_for_a_store_are_compressed_as_they_are_parsed(
    long_list: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_codec, "LONG_LIST", long_list)
    objects = [{"metadata": {"name": f"a{number}", "labels": {"x": "y" * 2000}}} for number in range(3)]
    text = orjson.dumps(LIST | {"items": objects})
    stored = CODEC.decode_stored(text)
    assert all(isinstance(each, PackedText) for each in stored.items)
    assert [bytes(each) for each in stored.items] == CODEC.decode_list(text).items
