"""One kept answer: read in either encoding, bounded when unpacked, and found under one key for the same question."""

from __future__ import annotations

import gzip

import pytest
from mitmproxy import http

from addons.offline.cached_response import MAX_KEPT, MAX_UNPACKED, CachedResponse, is_too_large, response_key
from kube.wire.encoding import Encoding
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
def test_what_is_the_same_question(one: Question, other: Question, same: bool) -> None:
    assert (response_key(*one) == response_key(*other)) is same


@pytest.mark.parametrize("packing", ["", "gzip"])
@pytest.mark.parametrize("encoding", Encoding)
def test_the_object_in_an_answer_is_read_in_either_encoding_packed_or_not(
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
def test_an_answer_that_is_no_object_is_a_value_error_and_nothing_else(
    headers: dict[str, str], body: bytes
) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each part says it in its own words
        CachedResponse(headers, body).single()


@pytest.mark.parametrize(
    ("length", "large"),
    [
        ("", False),
        ("0", False),
        (str(MAX_KEPT), False),
        (str(MAX_KEPT + 1), True),
        ("-1", False),
        ("x", False),
    ],
)
def test_an_answer_says_itself_whether_it_is_too_large(length: str, large: bool) -> None:
    assert is_too_large(http.Headers(Content_Length=length)) is large
    assert not is_too_large({})


def test_an_answer_in_several_members_is_read_whole() -> None:
    """Since Kubernetes 1.37 each flush of an answer is a gzip member of its own."""
    body = raw(node("n"))
    headers = {"content-type": JSON, "content-encoding": "gzip"}
    assert (
        CachedResponse(headers, gzip.compress(body[:20]) + gzip.compress(body[20:])).single().decode().name
        == "n"
    )


def test_an_answer_that_unpacks_to_more_than_it_may_is_a_value_error() -> None:
    """A body of 4 MiB can unpack to 4 GiB."""
    headers = {"content-type": JSON, "content-encoding": "gzip"}
    bomb = CachedResponse(headers, gzip.compress(b" " * (MAX_UNPACKED + 1)))
    with pytest.raises(ValueError, match="over the limit"):
        bomb.single()
    assert bomb.next_page() is None


@pytest.mark.parametrize("packing", ["", "gzip"])
@pytest.mark.parametrize("token", ["", "next"])
def test_of_a_list_only_its_head_is_read(packing: str, token: str) -> None:
    """Parsing a list of 16 MiB once held the event loop for a second. What follows the head here is no JSON at all."""
    body = b'{"kind":"PodList","metadata":{"continue":"%b"},"items":[' % token.encode() + b"x" * MAX_UNPACKED
    headers = {"content-type": JSON} | ({"content-encoding": packing} if packing else {})
    assert CachedResponse(headers, gzip.compress(body) if packing else body).next_page() == token


def test_answers_to_the_node_have_no_owner_and_all_others_have_one() -> None:
    assert response_key("", NODE, "a", "").owner == ""
    owners = {response_key(identity, NODE, "a", "").owner for identity in ("alice", "bob", "alice")}
    assert len(owners) == 2
    assert "" not in owners


def test_pages_come_back_from_disk() -> None:
    first, second, third = (
        CachedResponse({"content-type": JSON, "etag": str(number)}, b"line\n%d" % number * (number + 1))
        for number in range(3)
    )
    found = first.followed_by("a", second).followed_by("b", third)
    assert CachedResponse.load(found.dump()) == found
    assert CachedResponse.load(first.dump()) == first
    assert (found.page("b"), found.page("c")) == (third, None)
    assert found.size == sum(len(each.body) for each in (first, second, third))


def test_the_version_of_a_list_is_that_of_its_head() -> None:
    listed = raw({"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": []})
    assert CachedResponse({"content-type": JSON}, listed).list_version() == 7
    assert CachedResponse({"content-type": JSON}, b"<html>").list_version() == 0
