"""Discovery is kept whether anybody asked or not, and given to who accepts its form."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from addons.link.health import Cloud, ServerHealth
from addons.link.servers import parse_server
from addons.offline.cached_responses import CachedResponses
from addons.offline.offline_request import OfflineRequest
from addons.offline.people.kept_discovery import AGGREGATED, INTERVAL, KEPT, Discovery, Question
from kube.concurrency.pulse import Pulse
from kube.http.client import RawResponse, Unreachable
from tests.addons.support.copying import copies_in
from tests.addons.support.offline_parts import JSON, asked
from tests.kube.support.answering import AnsweringClient, Asked

KUBECTL = f"{AGGREGATED},{AGGREGATED.replace('v=v2;', 'v=v2beta1;')},{JSON}"


class Api(AnsweringClient):
    """A cloud whose discovery has an ETag."""

    def __init__(self) -> None:
        super().__init__()
        self.is_gone = False
        self.etag = '"0"'
        self.refused: frozenset[str] = frozenset()
        self.answered: list[tuple[str, int]] = []

    async def answer_relayed(self, asked: Asked) -> RawResponse:
        if self.is_gone:
            raise Unreachable("gone")
        form = KEPT.get(asked.path, JSON)
        if asked.path in self.refused:
            return RawResponse(403, CIMultiDictProxy(CIMultiDict()), b"")
        has = {"etag": self.etag} if form is AGGREGATED else {}
        status = 304 if has and asked.headers.get("If-None-Match") == self.etag else 200
        self.answered.append((asked.path, status))
        typed = CIMultiDict({"content-type": form, "content-encoding": "gzip", **has})
        body = gzip.compress(f"{asked.path} {self.etag}".encode())
        return RawResponse(status, CIMultiDictProxy(typed), body)


class Kept:
    def __init__(self, answers: CachedResponses) -> None:
        self.api, self.changed, self.is_up = Api(), Pulse(), True
        self.discovery = Discovery(self.api, answers, cast(Cloud, self))
        self.task = asyncio.create_task(self.discovery.run())

    async def ask(self, target: str, accept: str | None = KUBECTL) -> bytes | None:
        found = await self.discovery.answer(asked("GET", target, accept=accept))
        assert found is None or "content-encoding" not in found.headers
        return found.body if found is not None else None

    async def is_kept(self, target: str) -> None:
        """Return when there is an answer. The disk's thread works in real time, and notifies nobody."""
        while await self.ask(target) is None:  # noqa: ASYNC110 - as said above
            await asyncio.sleep(0.01)


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    async with copies_in(tmp_path) as copies:
        made = Kept(CachedResponses(copies.access))
        yield made
        made.task.cancel()


@pytest.mark.looptime
async def test_what_nobody_asked_for_is_there(kept: Kept) -> None:
    await kept.is_kept("/apis")
    assert [await kept.ask(path) for path in KEPT] == [f'{path} "0"'.encode() for path in KEPT]
    assert await kept.ask("/version?timeout=32s", None) == b'/version "0"'


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("target", "accept"), [("/apis", JSON), ("/apis", None), ("/apis/apps/v1", KUBECTL), ("/healthz", JSON)]
)
async def test_another_form_or_path_is_not_made_up(kept: Kept, target: str, accept: str | None) -> None:
    await asyncio.sleep(1)
    assert await kept.ask(target, accept) is None


async def test_what_did_not_change_is_not_fetched_again(kept: Kept) -> None:
    kept.task.cancel()
    answered = kept.api.answered
    for etag, statuses in (('"1"', [200, 200, 200]), ('"1"', [200, 304, 304]), ('"2"', [200, 200, 200])):
        answered.clear()
        kept.api.etag = etag
        assert await kept.discovery._renew()
        assert answered == list(zip(KEPT, statuses, strict=True))


@pytest.mark.looptime
async def test_a_cloud_that_is_away_at_first_is_asked_when_it_comes(tmp_path: Path) -> None:
    async with copies_in(tmp_path) as copies:
        kept = Kept(CachedResponses(copies.access))
        kept.is_up, kept.api.is_gone = False, True
        await asyncio.sleep(INTERVAL)
        assert kept.api.answered == []
        kept.is_up, kept.api.is_gone = True, False
        kept.changed.notify()
        await kept.is_kept("/apis")
        kept.task.cancel()


async def test_what_the_cloud_refuses_is_kept_no_longer_and_holds_up_nothing(tmp_path: Path) -> None:
    async with copies_in(tmp_path) as copies:
        answers, api = CachedResponses(copies.access), Api()
        further = [Question("POST", "/reviews", JSON, each) for each in (b"1", b"2")]
        made = Discovery(
            api, answers, Cloud([ServerHealth(parse_server("https://a"))], "priority"), lambda: further
        )
        assert await made._renew()
        assert [await answers.get(each.key) is not None for each in further] == [True, True]
        api.refused = frozenset({"/version", "/reviews"})
        assert await made._renew()
        assert [await answers.get(each.key) for each in further] == [None, None]
        assert await made.answer(asked_for("/version")) is None
        assert await made.answer(asked_for("/apis")) is not None


def asked_for(target: str) -> OfflineRequest:
    return asked("GET", target, accept=KUBECTL)
