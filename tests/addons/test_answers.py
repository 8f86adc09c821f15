"""Copies of answers: found for the same question and form, by the same identity, within bounds, after a restart."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mitmproxy import http

from addons.answers import MAX_BODY, Answers, KeptAnswer, answer_name, is_too_large
from addons.copies import Copies
from kube.disk import Disk, DiskError
from kube.disk_writer import DiskWriter
from kube.encoding import Encoding
from tests.addons.offline_parts import JSON, PROTOBUF, body_of, in_protobuf
from tests.addons.samples import node, raw

NODE = "/api/v1/nodes/n"


@pytest.fixture
async def copies(tmp_path: Path) -> AsyncIterator[Copies]:
    made = Copies(Disk(tmp_path / "cache"), DiskWriter())
    await made.open()
    yield made
    made.close()


async def test_an_answer_comes_back_after_a_restart_of_the_index(copies: Copies) -> None:
    Answers(copies).keep("name", {"content-type": "text/plain", "date": "today"}, b"line\nline")
    await asyncio.sleep(0.05)
    again = Answers(copies)
    await again.open()
    kept = await again.get("name")
    assert kept is not None
    assert (kept.headers, kept.body) == ({"content-type": "text/plain"}, b"line\nline")
    assert await again.get("other") is None


async def test_the_oldest_goes_first(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("addons.answers.MAX_ANSWERS", 2)
    answers = Answers(copies)
    answers.keep("a", {}, b"1")
    answers.keep("b", {}, b"2")
    assert await answers.get("a") is not None
    answers.keep("c", {}, b"3")
    assert [name for name in "abc" if await answers.get(name) is not None] == ["a", "c"]


async def test_bytes_are_bounded(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("addons.answers.MAX_BYTES", 10)
    monkeypatch.setattr("addons.answers.MAX_BODY", 8)
    answers = Answers(copies)
    answers.keep("too large", {}, b"123456789")
    answers.keep("a", {}, b"12345678")
    answers.keep("b", {}, b"12345678")
    assert [name for name in ("too large", "a", "b") if await answers.get(name) is not None] == ["b"]


async def test_an_answer_that_the_disk_did_not_take_is_written_when_it_passes_again(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = Answers(copies)

    def full(*_: object) -> None:
        raise DiskError("No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(copies.disk, "put", full)
        answers.keep("name", {}, b"seen")
        await asyncio.gather(*answers._tasks)
        assert await answers.get("name") is None
    answers.keep("name", {}, b"seen")
    await asyncio.gather(*answers._tasks)
    kept = await answers.get("name")
    assert kept is not None
    assert kept.body == b"seen"


Question = tuple[str, str, str, str]
"""Identity, target, Accept and Accept-Encoding."""


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("", NODE, "a", "gzip"), ("", f"{NODE}?resourceVersion=0&timeout=10s", "a", "gzip"), True),
        (("", f"{NODE}?a=1&b=2", "a", ""), ("", f"{NODE}?b=2&a=1", "a", ""), True),
        (("", NODE, "a", "gzip"), ("alice", NODE, "a", "gzip"), False),
        (("", NODE, "a", "gzip"), ("", NODE, "b", "gzip"), False),
        (("", NODE, "a", "gzip"), ("", NODE, "a", ""), False),
        (("", f"{NODE}?labelSelector=x", "a", ""), ("", NODE, "a", ""), False),
    ],
)
def test_what_is_the_same_question(one: Question, other: Question, same: bool) -> None:
    assert (answer_name(*one) == answer_name(*other)) is same


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
    codec, api_version, kind, found = KeptAnswer(headers, gzip.compress(body) if packing else body).single()
    assert (codec.encoding, api_version, kind, codec.peek(found).name) == (encoding, "v1", "Node", "n")


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
        ({"content-type": JSON, "content-encoding": "br"}, gzip.compress(raw(node("n")), mtime=0)),
        ({"content-type": PROTOBUF}, b"k8s\x00\xff"),
    ],
)
def test_an_answer_that_is_no_object_is_a_value_error_and_nothing_else(
    headers: dict[str, str], body: bytes
) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each part says it in its own words
        KeptAnswer(headers, body).single()


@pytest.mark.parametrize(
    ("length", "large"),
    [
        ("", False),
        ("0", False),
        (str(MAX_BODY), False),
        (str(MAX_BODY + 1), True),
        ("-1", False),
        ("x", False),
    ],
)
def test_an_answer_says_itself_whether_it_is_too_large(length: str, large: bool) -> None:
    assert is_too_large(http.Headers(Content_Length=length)) is large
    assert not is_too_large({})
