"""The page behind `observe`: what was, what comes, for whom, and how many at once."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from addons.telemetry.observation import Observation
from addons.telemetry.observations import Observations
from addons.ui.live.observe_page import MAX_FOLLOWERS, wanted_of
from tests.addons.support.hub_parts import HubParts
from tests.addons.support.report_parts import running_hub, served

SEEN = Observation(
    *(100.0, "kube-proxy", "list", "services", "", "default", "", "viewed", 200, 543, 0.0051),
    *("cloud", "view", "cached component", 42, ()),
)


class Observed:
    """A running admin server, what it has seen, and a client."""

    def __init__(self, session: aiohttp.ClientSession, url: str, seen: Observations) -> None:
        self.session, self.url, self.seen = session, f"{url}/debug/observe", seen

    async def names(self, query: str = "") -> list[str]:
        async with self.session.get(self.url + query) as answer:
            return [json.loads(each)["name"] async for each in answer.content if each.strip()]


@pytest.fixture
async def observed(parts: HubParts) -> AsyncIterator[Observed]:
    hub = running_hub(parts)
    async with served(hub) as (_, session, url):
        yield Observed(session, url, hub.observations)


async def test_the_past_is_told_and_selected(observed: Observed) -> None:
    for change in ({"name": "a"}, {"name": "b", "component": "kubelet"}, {"name": "c", "is_event": True}):
        observed.seen.add(SEEN._replace(**change))
    assert await observed.names() == ["a", "b"]
    assert await observed.names("?events=1") == ["a", "b", "c"]
    assert await observed.names("?component=kubelet") == ["b"]
    assert await observed.names("?resource=svc") == ["a", "b"]
    assert await observed.names("?since=60") == []


async def test_a_name_that_nobody_asked_by_or_for_is_told_with_the_nearest(observed: Observed) -> None:
    observed.seen.add(SEEN._replace(name="a"))

    async def hints(query: str) -> list[str]:
        async with observed.session.get(observed.url + query) as answer:
            return [json.loads(each)["hint"] async for each in answer.content if each.strip()]

    assert await hints("?component=kube-prox") == [
        "the component 'kube-prox' has asked for nothing: is it 'kube-proxy'?"
    ]
    assert await hints("?resource=servics.apps") == ["nobody has asked for 'servics': is it 'services'?"]
    assert await hints("?resource=pods&component=coredns") == [], "known, and silent so far"


async def test_who_follows_gets_what_comes_and_no_more_than_some_may(observed: Observed) -> None:
    observed.seen.add(SEEN._replace(name="before"))
    open_ = [await observed.session.get(f"{observed.url}?follow=1") for _ in range(MAX_FOLLOWERS)]
    async with observed.session.get(f"{observed.url}?follow=1") as refused:
        assert refused.status == 429
    observed.seen.add(SEEN._replace(name="after"))
    for each in open_:
        lines = [json.loads(line) async for line in _some(each)]
        assert [line["name"] for line in lines] == ["after"]
        each.close()


async def _some(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Up to the first line that is not empty."""
    async for each in answer.content:
        if each.strip():
            yield each
            return


async def test_other_users_of_the_node_are_refused(parts: HubParts, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(*_: object) -> int:
        return 12345

    monkeypatch.setattr("addons.ui.operator_check.peer_user", nobody)
    async with (
        served(running_hub(parts, plain_users="root")) as (_, session, url),
        session.get(f"{url}/debug/observe") as answer,
    ):
        assert answer.status == 403


@pytest.mark.parametrize("query", [{"verdict": "lost"}, {"since": "5m"}, {"since": "1" * 10}])
def test_what_cannot_be_read_is_refused(query: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(query))):
        wanted_of(query, 0.0)
