"""Copies of answers: found for the same question and form, by the same identity, within bounds, after a restart."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import diskcache
import pytest
from mitmproxy import http

from addons.offline.cached_responses import (
    MAX_BODY,
    CachedResponse,
    CachedResponses,
    answer_name,
    is_too_large,
)
from addons.offline.copies import DiskCopies
from kube.disk.database import Disk, open_cache
from kube.disk.writer import DiskWriter
from kube.wire.encoding import Encoding
from tests.addons.support.offline_parts import JSON, PROTOBUF, body_of, in_protobuf
from tests.addons.support.samples import node, raw

NODE = "/api/v1/nodes/n"


@pytest.fixture
async def copies(tmp_path: Path) -> AsyncIterator[DiskCopies]:
    made = DiskCopies(Disk(tmp_path / "cache"), DiskWriter())
    await made.open()
    yield made
    made.close()


async def test_an_answer_comes_back_after_a_restart_of_the_index(copies: DiskCopies) -> None:
    before = CachedResponses(copies)
    before.keep("name", {"content-type": "text/plain", "date": "today"}, b"line\nline")
    await asyncio.gather(*before._tasks)
    again = CachedResponses(copies)
    await again.open()
    kept = await again.get("name")
    assert kept is not None
    assert (kept.headers, kept.body) == ({"content-type": "text/plain"}, b"line\nline")
    assert await again.get("other") is None


async def test_the_oldest_goes_first(copies: DiskCopies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("addons.offline.cached_responses.MAX_ANSWERS", 2)
    answers = CachedResponses(copies)
    answers.keep("a", {}, b"1")
    answers.keep("b", {}, b"2")
    assert await answers.get("a") is not None
    answers.keep("c", {}, b"3")
    assert [name for name in "abc" if await answers.get(name) is not None] == ["a", "c"]


async def test_bytes_are_bounded(copies: DiskCopies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("addons.offline.cached_responses.MAX_BYTES", 10)
    monkeypatch.setattr("addons.offline.cached_responses.MAX_BODY", 8)
    answers = CachedResponses(copies)
    answers.keep("too large", {}, b"123456789")
    answers.keep("a", {}, b"12345678")
    answers.keep("b", {}, b"12345678")
    assert [name for name in ("too large", "a", "b") if await answers.get(name) is not None] == ["b"]


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


async def settled(copies: DiskCopies) -> None:
    """Return when the disk has done what was begun: it does all in its order."""
    await asyncio.sleep(0)
    await copies.guard(lambda: None)


async def test_what_a_full_disk_did_not_take_is_written_when_it_passes_again(tmp_path: Path) -> None:
    full = [False]

    def opener(folder: Path) -> diskcache.Cache:
        if full[0]:
            raise OSError(28, "No space left on device")
        return open_cache(folder)

    copies = DiskCopies(Disk(tmp_path / "cache", opener), DiskWriter())
    full[0] = True
    answers = CachedResponses(copies)
    await answers.open()
    answers.keep("name", {}, b"body")
    await settled(copies)
    assert await answers.get("name") is None
    full[0] = False
    answers.keep("name", {}, b"body")
    await settled(copies)
    again = CachedResponses(copies)
    await again.open()
    kept = await again.get("name")
    assert kept is not None
    assert kept.body == b"body"
    copies.close()


async def test_the_last_question_is_known_within_an_hour_after_a_restart(tmp_path: Path) -> None:
    now = [1_000_000.0]
    copies = DiskCopies(Disk(tmp_path / "cache"), DiskWriter(), lambda: now[0])

    async def asked() -> int:
        await settled(copies)
        again = CachedResponses(copies)
        await again.open()
        return again.index["name"].asked

    answers = CachedResponses(copies)
    answers.keep("name", {}, b"body")
    assert await asked() == 1_000_000
    now[0] += 3000
    answers.keep("name", {}, b"body")
    assert await asked() == 1_000_000
    now[0] += 3000
    answers.keep("name", {}, b"body")
    assert await asked() == 1_006_000
    # A clock that was set back: what it says now is nearer to the truth than a time to come.
    now[0] -= 5000
    assert await answers.get("name") is not None
    assert await asked() == 1_001_000
    copies.close()


async def test_answers_that_are_dropped_are_gone_from_disk(copies: DiskCopies) -> None:
    answers = CachedResponses(copies)
    answers.keep("name", {}, b"body")
    answers.keep("other", {}, b"body")
    await settled(copies)
    await answers.drop(["name", "unknown"])
    again = CachedResponses(copies)
    await again.open()
    assert list(again.index) == ["other"]
    assert (await copies.guard(lambda: copies.disk.values("answers")) or {}).keys() == {"other"}


async def test_what_was_in_a_store_that_was_set_aside_is_written_again(
    copies: DiskCopies, tmp_path: Path
) -> None:
    answers = CachedResponses(copies)
    answers.keep("name", {}, b"body")
    await settled(copies)
    await copies.guard(copies.disk.close)
    (tmp_path / "cache" / "cache.db").write_bytes(b"garbage" * 1000)
    assert await answers.get("name") is None
    answers.keep("name", {}, b"body")
    await settled(copies)
    again = CachedResponses(copies)
    await again.open()
    assert await again.get("name") is not None


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
        (str(MAX_BODY), False),
        (str(MAX_BODY + 1), True),
        ("-1", False),
        ("x", False),
    ],
)
def test_an_answer_says_itself_whether_it_is_too_large(length: str, large: bool) -> None:
    assert is_too_large(http.Headers(Content_Length=length)) is large
    assert not is_too_large({})


async def test_a_slow_disk_is_learnt_of_later(copies: DiskCopies, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = CachedResponses(copies)
    for name in ("old", "both"):
        answers.keep(name, {}, b"of before")
    await settled(copies)
    monkeypatch.setattr("addons.offline.cached_responses.PATIENCE", 0.01)
    released = threading.Event()
    blocked = asyncio.create_task(copies.guard(released.wait))
    await asyncio.sleep(0)
    again = CachedResponses(copies)
    await again.open()
    assert not again.index
    again.keep("both", {}, b"of now")
    released.set()
    await blocked
    await settled(copies)
    await settled(copies)
    for name, body in (("old", b"of before"), ("both", b"of now")):
        kept = await again.get(name)
        assert kept is not None
        assert kept.body == body
