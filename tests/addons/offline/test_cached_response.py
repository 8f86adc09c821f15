"""One cached response: decoded in either encoding, bounded when decompressed, the start of a list, and pages."""

from __future__ import annotations

import gzip

import pytest
from mitmproxy import http

from addons.offline import cached_response
from addons.offline.cached_response import (
    HEAD,
    MAX_CACHED,
    MAX_GROWING,
    MAX_UNPACKED,
    CachedResponse,
    GrowingLists,
    ResponseKey,
    is_too_large,
    list_head,
    response_key,
)
from addons.telemetry import metrics
from kube.wire.codec import codec_for
from kube.wire.codec_base import ListMeta
from kube.wire.encoding import Encoding
from kube.wire.schema import MESSAGES
from tests.addons.support.observed import value_of
from tests.addons.support.offline_parts import JSON, PROTOBUF, body_of, in_protobuf
from tests.addons.support.samples import node, raw

NODE = "/api/v1/nodes/n"

Question = tuple[str, str, str, str]
"""Identity, target, Accept and Accept-Encoding."""


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("", NODE, "a", "gzip"), ("", f"{NODE}?resourceVersion=0&timeout=10s", "a", "gzip"), True),
        (("", f"{NODE}?a=1&pretty=1", "a", ""), ("", NODE, "a", ""), True),
        (("", "/version?x=1", "a", ""), ("", "/version?x=2", "a", ""), True),
        (("", "/version", "a", ""), ("", "/%76ersion", "a", ""), True),
        (
            ("", f"{NODE}?labelSelector=x&labelSelector=y", "a", ""),
            ("", f"{NODE}?labelSelector=x", "a", ""),
            True,
        ),
        (("", NODE, "a", "gzip"), ("alice", NODE, "a", "gzip"), False),
        (("", NODE, "a", "gzip"), ("", NODE, "b", "gzip"), False),
        (("", NODE, "a", "gzip"), ("", NODE, "a", ""), False),
        (("", f"{NODE}?labelSelector=x", "a", ""), ("", NODE, "a", ""), False),
    ],
)
def test_equal_requests_have_equal_keys(one: Question, other: Question, same: bool) -> None:
    assert (response_key(*one) == response_key(*other)) is same


@pytest.mark.parametrize("packing", ["", "gzip"])
@pytest.mark.parametrize("encoding", Encoding)
def test_the_object_of_a_response_is_read_in_either_encoding_with_or_without_gzip(
    encoding: Encoding, packing: str
) -> None:
    body = body_of(in_protobuf("v1", "Node", "n"))
    if encoding is Encoding.JSON:
        body = raw(node("n"))
    headers = {"content-type": f"{encoding};charset=utf-8"} | (
        {"content-encoding": packing} if packing else {}
    )
    found = CachedResponse(headers, gzip.compress(body) if packing else body).single()
    assert (found.codec.encoding, found.api_version, found.kind) == (encoding, "v1", "Node")
    assert found.decode().name == "n"


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, raw(node("n"))),
        ({"content-type": "text/plain"}, raw(node("n"))),
        ({"content-type": JSON}, b"{"),
        ({"content-type": JSON}, b""),
        ({"content-type": JSON, "content-encoding": "gzip"}, raw(node("n"))),
        ({"content-type": JSON, "content-encoding": "gzip"}, b""),
        ({"content-type": JSON, "content-encoding": "gzip"}, gzip.compress(raw(node("n")), mtime=0)[:-12]),
        (
            {"content-type": JSON, "content-encoding": "gzip"},
            gzip.compress(raw(node("n")), mtime=0) + b"behind",
        ),
        (
            {"content-type": JSON, "content-encoding": "gzip, gzip"},
            gzip.compress(gzip.compress(raw(node("n")))),
        ),
        ({"content-type": JSON, "content-encoding": "br"}, gzip.compress(raw(node("n")), mtime=0)),
        ({"content-type": PROTOBUF}, b"k8s\x00\xff"),
    ],
)
def test_a_response_without_an_object_raises_only_a_value_error(headers: dict[str, str], body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each part says it in its own words
        CachedResponse(headers, body).single()


@pytest.mark.parametrize(
    ("length", "large"),
    [
        ("", False),
        ("0", False),
        (str(MAX_CACHED), False),
        (str(MAX_CACHED + 1), True),
        ("-1", False),
        ("x", False),
    ],
)
def test_the_content_length_decides_whether_a_response_is_too_large(length: str, large: bool) -> None:
    assert is_too_large(http.Headers(Content_Length=length)) is large
    assert not is_too_large({})


def test_a_response_of_several_gzip_members_is_read_completely() -> None:
    """Since Kubernetes 1.37 each flush of a response is its own gzip member."""
    body = raw(node("n"))
    headers = {"content-type": JSON, "content-encoding": "gzip"}
    assert (
        CachedResponse(headers, gzip.compress(body[:20]) + gzip.compress(body[20:])).single().decode().name
        == "n"
    )


def test_a_response_beyond_the_decompressed_bound_is_a_value_error() -> None:
    """A body of 4 MiB can unpack to 4 GiB."""
    headers = {"content-type": JSON, "content-encoding": "gzip"}
    bomb = CachedResponse(headers, gzip.compress(b" " * (MAX_UNPACKED + 1)))
    with pytest.raises(ValueError, match="over the limit"):
        bomb.single()
    assert bomb.next_page() is None


@pytest.mark.parametrize("packing", ["", "gzip"])
@pytest.mark.parametrize("token", ["", "next"])
def test_only_the_start_of_a_list_is_parsed_for_its_continue_token(packing: str, token: str) -> None:
    """Parsing a list of 16 MiB once blocked the event loop for a second. The rest of this body is not valid JSON."""
    body = b'{"kind":"PodList","metadata":{"continue":"%b"},"items":[' % token.encode() + b"x" * MAX_UNPACKED
    headers = {"content-type": JSON} | ({"content-encoding": packing} if packing else {})
    assert CachedResponse(headers, gzip.compress(body) if packing else body).next_page() == token


def test_stored_responses_to_callers_have_an_owner_and_those_to_the_node_have_none() -> None:
    assert response_key("", NODE, "a", "").owner == ""
    owners = {response_key(identity, NODE, "a", "").owner for identity in ("alice", "bob", "alice")}
    assert len(owners) == 2
    assert "" not in owners


def test_stored_pages_are_loaded_from_disk() -> None:
    first, second, third = (
        CachedResponse({"content-type": JSON, "etag": str(number)}, b"line\n%d" % number * (number + 1))
        for number in range(3)
    )
    found = first.followed_by("a", second).followed_by("b", third)
    assert CachedResponse.load(found.dump()) == found
    assert CachedResponse.load(first.dump()) == first
    assert (found.page("b"), found.page("c")) == (third, None)
    assert found.size == sum(len(each.body) for each in (first, second, third))


def test_the_version_of_a_list_is_read_from_its_metadata() -> None:
    listed = raw({"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": []})
    assert CachedResponse({"content-type": JSON}, listed).list_version() == 7
    assert CachedResponse({"content-type": JSON}, b"<html>").list_version() == 0


LONG = b" " * HEAD
"""A string that makes a body longer than its parsed start."""


def protobuf_list(token: str, items: int = 1, size: int = 200) -> bytes:
    """Return the start of a list as kube-apiserver writes it in protobuf, before its items."""
    metadata = {"resourceVersion": "7", "continue": token, "remainingItemCount": 300}
    page = MESSAGES["wire.AnyList"].new(metadata=metadata, items=[b"x" * size] * items)
    return codec_for(Encoding.PROTOBUF).encode_single("v1", "PodList", page.SerializeToString())


@pytest.mark.parametrize(
    ("body", "token"),
    [
        (b'{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[]}', ""),
        (b'{"kind":"PodList","metadata":{"resourceVersion":"1","continue":""},"items":null}', ""),
        (b'{"kind":"PodList","metadata":{"resourceVersion":"1","continue":"a"},"items":[{"met' + LONG, "a"),
        (b'{ "metadata" : { "continue" : "a" } ,\n "items" : [' + LONG, "a"),
        (b'{"kind":"Table","metadata":{"continue":"a"},"columnDefinitions":[{"name":' + LONG, "a"),
        (b'{"kind":"Table","metadata":{},"rows":[' + LONG, ""),
        (b'{"metadata":{"selfLink":"\\"items\\":","continue":"a"},"items":[' + LONG, "a"),
        (b'{"kind":"PodList","items":[],"metadata":{"continue":"a"}}', "a"),
        (b'{"kind":"PodList","items":[],"metadata":{"continue":"a"}}' + LONG, None),
        (LONG, None),
        (b'{"items":[]}', None),
        (b'{"metadata":[],"items":[]}', None),
        (b"[]", None),
        (b"", None),
        (b"<html>", None),
    ],
)
def test_the_head_of_a_json_list_is_read(body: bytes, token: str | None) -> None:
    if token is None:
        with pytest.raises(ValueError):  # noqa: PT011 - orjson says it in its own words
            list_head(Encoding.JSON, body[:HEAD])
    else:
        assert list_head(Encoding.JSON, body[:HEAD]).continue_token == token


def test_the_version_is_that_of_the_metadata() -> None:
    assert list_head(Encoding.JSON, b'{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[]}') == (
        7,
        "",
    )


@pytest.mark.parametrize("token", ["", "next" * 40])
@pytest.mark.parametrize("size", [0, 200, 2 * HEAD])
def test_the_head_of_a_protobuf_list_is_read(token: str, size: int) -> None:
    assert list_head(Encoding.PROTOBUF, protobuf_list(token, size=size)[:HEAD]) == (7, token)


def test_the_head_of_a_protobuf_list_by_the_codec_is_read() -> None:
    listed = codec_for(Encoding.PROTOBUF).encode_list("v1", "Pod", ListMeta(7), [b"x" * 200] * 1000)
    head = b"".join(listed)[:HEAD]
    assert list_head(Encoding.PROTOBUF, head) == (7, "")


def test_each_truncation_of_a_list_gives_a_value_error_or_the_token() -> None:
    complete = protobuf_list("next" * 40)
    found = set()
    for end in range(len(complete)):
        try:
            found.add(list_head(Encoding.PROTOBUF, complete[:end]).continue_token)
        except ValueError:
            found.add("")
    assert found == {"", "next" * 40}


@pytest.mark.parametrize(
    "body", [b"", b"k8s\x00", b"{}", b"k8s\x00\x12\x01a", b"k8s\x00\x0a\xff\xff\xff\xff\xff"]
)
def test_a_malformed_protobuf_list_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"list|protobuf"):
        list_head(Encoding.PROTOBUF, body)


KEY = ResponseKey("list")


def page(following: str, version: str = "7") -> CachedResponse:
    metadata = {"resourceVersion": version, "continue": following}
    return CachedResponse({"content-type": JSON}, raw({"kind": "PodList", "metadata": metadata, "items": []}))


def test_a_list_of_one_page_is_complete_at_once() -> None:
    assert GrowingLists().add(KEY, "", page("")) == page("")


def test_a_list_is_complete_with_its_last_page() -> None:
    lists = GrowingLists()
    assert lists.add(KEY, "", page("1")) is None
    assert lists.add(KEY, "1", page("2")) is None
    complete = lists.add(KEY, "2", page(""))
    assert complete == page("1").followed_by("1", page("2")).followed_by("2", page(""))
    assert lists.add(KEY, "2", page("")) is None, "it grows no longer"


def test_pages_of_two_lists_are_not_joined() -> None:
    """Two clients list the same resource: the list of the first client is not stored."""
    lists = GrowingLists()
    lists.add(KEY, "", page("1", "7"))
    lists.add(KEY, "", page("x", "9"))
    assert lists.add(KEY, "1", page("", "7")) is None
    complete = lists.add(KEY, "x", page("", "9"))
    assert complete is not None
    assert [each.list_version() for _, each in complete.further] == [9]


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>"])
def test_a_malformed_page_discards_its_list(body: bytes) -> None:
    lists = GrowingLists()
    lists.add(KEY, "", page("1"))
    assert lists.add(KEY, "1", CachedResponse({"content-type": JSON}, body)) is None
    assert lists.add(KEY, "1", page("")) is None


def test_collected_pages_are_bounded_by_the_size_of_a_stored_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cached_response, "MAX_CACHED", 2 * len(page("1").body))
    lists = GrowingLists()
    for token in ("", "1"):
        assert lists.add(KEY, token, page("1")) is None
    assert lists.add(KEY, "1", page("1")) is None
    assert lists.add(KEY, "1", page("")) is None


def test_collected_lists_are_bounded_and_callers_lists_evict_none_of_the_nodes() -> None:
    counter = metrics.BOUNDS_REACHED.labels("lists that grow")
    lists, before = GrowingLists(), value_of(counter)
    lists.add(KEY, "", page("1"))
    others = [ResponseKey(str(number), "pod") for number in range(MAX_GROWING + 1)]
    for each in others:
        lists.add(each, "", page("1"))
    assert value_of(counter) == before + 1
    assert [lists.add(each, "1", page("")) is not None for each in others] == [False, *[True] * MAX_GROWING]
    assert lists.add(KEY, "1", page("")) is not None
