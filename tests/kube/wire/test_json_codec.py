"""The JSON encoding: what lists leave out, and streams that are not one event a line."""

from __future__ import annotations

import json
from collections.abc import Callable
from unittest.mock import patch

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.errors import bad_request
from kube.wire import json_codec
from kube.wire.codec_base import ListPage, WatchFrame
from kube.wire.encoding import Encoding
from kube.wire.json_codec import JsonCodec
from tests.kube.support.recorded import LISTS, STREAMS, body, single
from tests.support.cpu_time import own_seconds

CODEC = JsonCodec()

FORMS: dict[str, Callable[[list[bytes]], bytes]] = {
    "as recorded": lambda lines: b"\n".join(lines) + b"\n",
    "no newline at the end": b"\n".join,
    "nothing between": b"".join,
    "blank lines": lambda lines: b"\r\n \n\t\r\n".join([b"", *lines, b""]),
    "indented": lambda lines: b"\n".join(json.dumps(json.loads(line), indent=2).encode() for line in lines),
    "indented, nothing between": lambda lines: b"".join(
        json.dumps(json.loads(line), indent="\t").encode() for line in lines
    ),
    "two a line": lambda lines: b"".join(
        line + (b"\n" if number % 2 else b"") for number, line in enumerate(lines)
    ),
}
"""Ways in which the same events may be written."""


def stream_lines() -> list[bytes]:
    """Real events, and some with braces and quotes where they mean nothing."""
    tricky = ['}{"]', "\\", '\\"', "\\\\", "\u2028\n", "{" * 9, '"}\n{"type":"ADDED"']
    texts = [
        json.dumps({"type": "ADDED", "object": {"kind": "C", "apiVersion": "v1", "data": {text: text}}})
        for text in tricky
    ]
    return [*body("services.watch", Encoding.JSON).splitlines(), *(text.encode() for text in texts)]


def events(*chunks: bytes) -> list[WatchFrame]:
    reader = CODEC.frames()
    frames = [frame for chunk in chunks for frame in reader.feed(chunk)]
    reader.close()
    return frames


@pytest.mark.parametrize("form", FORMS)
def test_any_form_of_a_stream(form: str) -> None:
    lines = stream_lines()
    stream = FORMS[form](lines)
    expected = [json.loads(line) for line in lines]
    for chunks in ([stream], [bytes((byte,)) for byte in stream]):
        found = [{"type": frame.type, "object": json.loads(frame.raw)} for frame in events(*chunks)]
        assert found == expected


@given(form=st.sampled_from(sorted(FORMS)), size=st.integers(1, 5000))
def test_any_form_in_any_chunks(form: str, size: int) -> None:
    lines = stream_lines()
    stream = FORMS[form](lines)
    chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert [json.loads(frame.raw) for frame in events(*chunks)] == [
        json.loads(line)["object"] for line in lines
    ]


@pytest.mark.parametrize("form", FORMS)
def test_an_event_comes_with_its_last_byte(form: str) -> None:
    one, two = stream_lines()[:2]
    reader = CODEC.frames()
    text = FORMS[form]([one]).rstrip()
    assert len(reader.feed(text)) == 1
    first, last = FORMS[form]([two]).rstrip()[:-1], b"}"
    assert reader.feed(first) == []
    assert len(reader.feed(last)) == 1
    assert len(reader.feed(FORMS[form]([one, two])[:-99])) == 1


def test_a_chunk_that_ends_with_a_brace_is_not_always_an_event() -> None:
    line = stream_lines()[0] + b"\n"
    after = line.index(b"}") + 1
    reader = CODEC.frames()
    assert reader.feed(line[:after]) == []
    assert [frame.type for frame in reader.feed(line[after:] + line + line)] == ["ADDED"] * 3


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (b"hello\n", "does not begin with a brace"),
        (b"[]\n", "does not begin with a brace"),
        (b"{}\n", "no type"),
        (b'{"type":7,"object":{}}\n', "no type"),
        (b'{"type":["ADDED"],"object":{}}\n', "no type"),
        (b'{"type":"SYNCED","object":{}}\n', "no type"),
        (b'{"type":"ADDED"}\n', "is NoneType"),
        (b'{"type":"ADDED","object":[]}\n', "is list"),
        (b'{"type":"ADDED","object":{"kind":"C"}}\n', "apiVersion and kind"),
        (b'{"type":"ERROR","object":{"kind":"C","apiVersion":"v1"}}\n', "not a Status"),
        (b'{"type":"ADDED",}\n', "trailing comma"),
        (b'{"type":"ADDED"]\n', "line 1 column"),
        (b'{"type":"\xff"}\n', "UTF-8"),
    ],
)
def test_what_is_no_event(stream: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CODEC.frames().feed(stream)


def seconds(*chunks: bytes) -> float:
    return own_seconds(lambda: events(*chunks))


@pytest.mark.parametrize("between", [b"\n", b""], ids=["lines", "nothing between"])
def test_time_grows_with_the_bytes_and_not_with_their_square(between: bytes) -> None:
    item = b'{"a":"b}"},'

    def large(count: int) -> bytes:
        return (
            b'{"type":"ADDED","object":{"kind":"C","apiVersion":"v1","l":[%b0]}}' % (item * count) + between
        )

    def chunks(count: int) -> list[bytes]:
        stream = large(count) * 2
        return [stream[start : start + 1024] for start in range(0, len(stream), 1024)]

    small = min(seconds(*chunks(2_000)) for _ in range(3))
    assert min(seconds(*chunks(32_000)) for _ in range(2)) < 16 * 4 * small


@pytest.mark.parametrize("name", [name for name in LISTS if name != "services.page"])
def test_our_list_holds_the_servers_objects(name: str) -> None:
    original = json.loads(body(name, Encoding.JSON))
    page = CODEC.decode_list(body(name, Encoding.JSON))
    ours = json.loads(bytes(CODEC.encode_list(page.api_version, page.kind, page.version, page.items)))
    head = {"kind": page.kind, "apiVersion": page.api_version}
    assert ours == {**original, "items": [{**head, **item} for item in original["items"]]}
    assert [list(item) for item in ours["items"]] == [[*head, *item] for item in original["items"]]


def test_items_that_have_their_kind_keep_it() -> None:
    item = b'{"apiVersion":"x/v2","kind":"Other","a":1}'
    body = b'{"kind":"ThingList","apiVersion":"x/v1","metadata":{},"items":[%b]}' % item
    assert [json.loads(raw) for raw in CODEC.decode_list(body).items] == [json.loads(item)]


def test_a_list_whose_items_are_null_is_empty() -> None:
    page = CODEC.decode_list(
        b'{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":null}'
    )
    assert (page.version, page.items) == (7, [])


@pytest.mark.parametrize("items", [b'{"a":1}', b'"x"', b"[1]", b"[null]", b"7"])
def test_items_that_are_no_objects(items: bytes) -> None:
    with pytest.raises(ValueError, match="items of a list must be objects"):
        CODEC.decode_list(b'{"kind":"ServiceList","apiVersion":"v1","items":%b}' % items)


@pytest.mark.parametrize("name", STREAMS)
def test_our_frames_hold_the_servers_objects(name: str) -> None:
    stream = body(name, Encoding.JSON)
    ours = [CODEC.encode_event(*frame[:4]) for frame in events(stream)]
    assert [json.loads(frame) for frame in ours] == [json.loads(line) for line in stream.splitlines()]
    assert [frame.count(b"\n") for frame in ours] == [1] * len(ours)


def test_an_indented_body_becomes_a_line() -> None:
    api_version, kind, raw = single("services.single", Encoding.JSON)
    indented = json.dumps(json.loads(raw), indent=4).replace("\n", "\r\n").encode()
    assert CODEC.decode_single(indented)[:2] == (api_version, kind)
    line = CODEC.decode_single(indented)[2]
    assert json.loads(line) == json.loads(raw)
    assert b"\n" not in line


@pytest.mark.parametrize("body", [b"{}", b'{"kind":"C"}', b'{"apiVersion":"v1","kind":null}'])
def test_an_object_must_say_what_it_is(body: bytes) -> None:
    with pytest.raises(ValueError, match="must have apiVersion and kind"):
        CODEC.decode_single(body)


@pytest.mark.parametrize("metadata", [b"null", b"7", b"[]", b'{"labels":7,"name":[]}'])
def test_metadata_of_a_wrong_type_reads_as_absent(metadata: bytes) -> None:
    raw = b'{"kind":"C","apiVersion":"v1","metadata":%b}' % metadata
    assert CODEC.peek(raw) == ("", "", 0, {})
    assert json.loads(CODEC.with_version(raw, 7))["metadata"]["resourceVersion"] == "7"
    assert json.loads(CODEC.metadata_only(raw))["kind"] == "PartialObjectMetadata"


def test_an_error_is_one_line() -> None:
    frame = CODEC.encode_error(bad_request("a\nb"))
    assert frame.endswith(b"}}\n")
    assert frame.count(b"\n") == 1
    assert CODEC.encode_status(bad_request("a\nb")) == bad_request("a\nb").to_json()


# -- long lists ----------------------------------------------------------------------------------------------------

TEXTS = st.text(st.sampled_from('{}[],:"\\ aé\u2028\x00'), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS | st.just("items"), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from(("metadata", "items", "spec")) | TEXTS, VALUES, max_size=3)
LIST = {"kind": "ThingList", "apiVersion": "v1", "metadata": {"resourceVersion": "5"}}


def in_parts(text: bytes, part: int) -> ListPage | type[ValueError]:
    with patch.multiple(json_codec, LONG_LIST=0, PART=part):
        return decoded(text)


def decoded(text: bytes) -> ListPage | type[ValueError]:
    try:
        return CODEC.decode_list(text)
    except ValueError:
        return ValueError


@settings(max_examples=100)
@given(
    st.lists(OBJECTS, max_size=6),
    st.booleans(),
    st.booleans(),
    st.sampled_from((None, 1)),
    st.sampled_from((1, 40, 200)),
    st.data(),
)
def test_a_list_in_parts_is_the_list_at_once(
    items: list[dict[str, object]],
    sort: bool,
    ascii_only: bool,
    indent: int | None,
    part: int,
    data: st.DataObject,
) -> None:
    page = {**LIST, "items": items}
    separators = (",", ":") if indent is None else None
    text = json.dumps(
        page, sort_keys=sort, ensure_ascii=ascii_only, indent=indent, separators=separators
    ).encode()
    at_once = CODEC.decode_list(text)
    assert in_parts(text, part) == at_once
    assert in_parts(text, 10**6) == at_once
    # Whatever is torn, changed or written twice: what orjson refuses is refused, and nothing else.
    begin, end = sorted(data.draw(st.lists(st.integers(0, len(text)), min_size=2, max_size=2)))
    to = data.draw(st.integers(0, len(text)))
    sign = data.draw(st.sampled_from([b"[", b"]", b"{", b"}", b",", b'"', b"\\", b"\xff", b" "]))
    for garbled in (
        text[:end],
        text[:begin] + text[end:],
        text[:to] + text[begin:end] + text[to:],
        text[:begin] + sign + text[begin:],
    ):
        assert in_parts(garbled, part) == decoded(garbled)


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
        HEAD + b'"items":[%b],"items":[%b,%b]}' % (ITEM, ITEM, ITEM),
        HEAD + b'"items":[%b],"items":null}' % ITEM,
        HEAD + b'"items":[%b],"\\u0069tems":[]}' % ITEM,
        HEAD + b'"items":7,"items":[%b,%b]}' % (ITEM, ITEM),
        HEAD + b'"metadata":{"items":[%b]},"items":[%b]}' % (ITEM, ITEM),
        HEAD + b'"items":[%b],"kind":"OtherList"}' % ITEM,
        HEAD + b'"items":[%b,{"metadata":{}}],"more":[%b,%b]}' % (ITEM, ITEM, ITEM),
        HEAD + b'"items":[%b],[%b,%b]}' % (ITEM, ITEM, ITEM),
        HEAD + b'"items":[{"a":' + b"[" * 1021 + b"]" * 1021 + b"}]}",
        HEAD + b'"items":[{"a":' + b"[" * 252 + b"]" * 252 + b"}]}",
        b'{"kind":"Thing","apiVersion":"v1","items":[%b]}' % ITEM,
        b'{"apiVersion":"v1","items":[%b],"kind":"ThingList"}' % ITEM,
        b'{"items":null,"kind":"ThingList"}',
        b"[%b]" % ITEM,
        b"",
    ],
)
@pytest.mark.parametrize("part", [1, 30, 10**6])
def test_shapes_that_are_read_as_at_once(text: bytes, part: int) -> None:
    assert in_parts(text, part) == decoded(text)


def test_no_call_of_orjson_gets_a_long_list() -> None:
    """orjson keeps the interpreter's lock for the whole of a call: 16 MiB held the event loop for half a second."""
    items = [
        {"metadata": {"name": f"x{number}", "annotations": {"a": '},{"metadata"'}}}
        for number in range(25_000)
    ]
    text = json.dumps({**LIST, "items": items}, separators=(",", ":")).encode()
    assert len(text) > json_codec.LONG_LIST
    with patch.object(orjson, "loads", wraps=orjson.loads) as loads:
        page = CODEC.decode_list(text)
    assert len(page.items) == len(items)
    assert max(len(call.args[0]) for call in loads.call_args_list) < 3 * json_codec.PART


@pytest.mark.parametrize("sort", [False, True])
def test_a_list_of_custom_resources_is_read_in_parts(sort: bool) -> None:
    """A kube-apiserver writes its kind behind the items."""
    text = json.dumps(
        {**LIST, "items": [{"metadata": {"name": "x"}}] * 50}, sort_keys=sort, separators=(",", ":")
    )
    with patch.multiple(json_codec, LONG_LIST=1000, PART=300, MAX_AT_ONCE=10):
        assert len(CODEC.decode_list(text.encode()).items) == 50


BOMBS = {
    "no JSON": bytes(5000),
    "blanks": HEAD + b'"items":[' + b" " * 5000 + b"]}",
    "blanks behind the items": HEAD + b'"items":[]' + b" " * 5000 + b"}",
    "an object": HEAD + b'"items":[{"a":"' + b"x" * 5000 + b'"}]}',
    "empty objects": HEAD + b'"items":[{}' + b",{}" * 2000 + b"]}",
    "brackets": HEAD + b'"items":[' + b"[" * 5000,
    "numbers before the kind": b'{"apiVersion":"v1","items":[0' + b",0" * 2500 + b'],"kind":"ThingList"}',
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_no_bomb_is_parsed_at_once(text: bytes) -> None:
    """240 MiB of each, which are 240 KB packed, held the event loop for up to eight seconds."""
    with (
        patch.multiple(json_codec, LONG_LIST=1000, PART=300, MAX_AT_ONCE=1000, MAX_FRAME=1000, MAX_ITEMS=500),
        patch.object(orjson, "loads", wraps=orjson.loads) as loads,
        pytest.raises(ValueError, match=r"list|object|JSON"),
    ):
        CODEC.decode_list(text)
    assert max((len(call.args[0]) for call in loads.call_args_list), default=0) < 2000
