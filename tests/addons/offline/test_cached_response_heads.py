"""The metadata of a list, read from its first bytes in either encoding."""

from __future__ import annotations

import pytest

from addons.offline.cached_response import HEAD, list_head
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from kube.wire.schema import MESSAGES

JSON, PROTOBUF = Encoding.JSON, Encoding.PROTOBUF
LONG = b" " * HEAD
"""Makes a body longer than its head."""


def protobuf_list(token: str, items: int = 1, size: int = 200) -> bytes:
    """A list as a kube-apiserver writes one in protobuf, before its items."""
    metadata = {"resourceVersion": "7", "continue": token, "remainingItemCount": 300}
    page = MESSAGES["AnyList"].new(metadata=metadata, items=[b"x" * size] * items)
    return codec_for(PROTOBUF).encode_single("v1", "PodList", page.SerializeToString())


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
def test_of_json(body: bytes, token: str | None) -> None:
    if token is None:
        with pytest.raises(ValueError):  # noqa: PT011 - orjson says it in its own words
            list_head(JSON, body[:HEAD])
    else:
        assert list_head(JSON, body[:HEAD]).continue_token == token


def test_the_version_is_that_of_the_metadata() -> None:
    assert list_head(JSON, b'{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[]}') == (7, "")


@pytest.mark.parametrize("token", ["", "next" * 40])
@pytest.mark.parametrize("size", [0, 200, 2 * HEAD])
def test_of_protobuf(token: str, size: int) -> None:
    assert list_head(PROTOBUF, protobuf_list(token, size=size)[:HEAD]) == (7, token)


def test_of_protobuf_that_a_codec_wrote() -> None:
    listed = codec_for(PROTOBUF).encode_list("v1", "Pod", 7, [b"x" * 200] * 1000)
    head = b"".join(listed)[:HEAD]
    assert list_head(PROTOBUF, head) == (7, "")


def test_each_cut_of_a_head_is_a_value_error_or_the_token() -> None:
    whole = protobuf_list("next" * 40)
    found = set()
    for end in range(len(whole)):
        try:
            found.add(list_head(PROTOBUF, whole[:end]).continue_token)
        except ValueError:
            found.add("")
    assert found == {"", "next" * 40}


@pytest.mark.parametrize(
    "body", [b"", b"k8s\x00", b"{}", b"k8s\x00\x12\x01a", b"k8s\x00\x0a\xff\xff\xff\xff\xff"]
)
def test_what_is_no_list_in_protobuf(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"list|protobuf"):
        list_head(PROTOBUF, body)
