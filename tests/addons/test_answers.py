"""Copies of answers: found for the same question and form, by the same identity, within bounds, after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from addons.answers import Answers, answer_name
from addons.copies import Copies
from kube.disk import Disk
from kube.disk_writer import DiskWriter

NODE = "/api/v1/nodes/n"


@pytest.fixture
async def copies(tmp_path: Path) -> AsyncIterator[Copies]:
    made = Copies(Disk(tmp_path / "cache"), DiskWriter())
    await made.open()
    yield made
    made.close()


async def test_an_answer_comes_back_after_a_restart_of_the_index(copies: Copies) -> None:
    before = Answers(copies)
    before.keep("name", {"content-type": "text/plain", "date": "today"}, b"line\nline")
    await asyncio.gather(*before._tasks)
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
