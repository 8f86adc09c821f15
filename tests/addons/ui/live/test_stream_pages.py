"""Endless responses: observation lines for users, and flows for an attached process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, NamedTuple

import aiohttp
import pytest
from mitmproxy.io import tnetstring
from mitmproxy.test import taddons

from addons.link.drills import Drills
from addons.ui.attached.attachments import Attachments
from addons.ui.live.stream_pages import MAX_DECISION, MAX_FOLLOWERS, wanted_of
from addons.ui.running_hub import RunningHub
from tests.addons.support.admin_client import AdminClient, served
from tests.addons.support.hub_world import HubWorld
from tests.addons.support.samples import SEEN

PAGE = "/debug/observe"


async def events(pages: AdminClient, query: str, field: str) -> list[str]:
    _, text = await pages.ask(PAGE + query)
    return [json.loads(line)[field] for line in text.splitlines() if line]


async def test_past_lines_are_returned_and_selected(pages: AdminClient, hub: RunningHub) -> None:
    for change in ({"name": "a"}, {"name": "b", "component": "kubelet"}, {"name": "c", "is_event": True}):
        hub.records.observations.add(SEEN._replace(**change))
    assert await events(pages, "", "name") == ["a", "b"]
    assert await events(pages, "?events=1", "name") == ["a", "b", "c"]
    assert await events(pages, "?component=kubelet", "name") == ["b"]
    assert await events(pages, "?resource=svc", "name") == ["a", "b"]
    assert await events(pages, "?since=60", "name") == []


async def test_an_unknown_name_is_reported_with_the_nearest(pages: AdminClient, hub: RunningHub) -> None:
    hub.records.observations.add(SEEN._replace(name="a"))
    assert await events(pages, "?component=kube-prox", "hint") == [
        "the component 'kube-prox' has asked for nothing: is it 'kube-proxy'?"
    ]
    assert await events(pages, "?resource=servics.apps", "hint") == [
        "no client has asked for 'servics': is it 'services'?"
    ]
    assert await events(pages, "?resource=pods&component=coredns", "hint") == [], "known, and silent so far"


async def test_a_follower_gets_new_lines_and_followers_are_bounded(
    pages: AdminClient, hub: RunningHub
) -> None:
    async def some(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """Return the data up to the first line that is not empty."""
        async for each in answer.content:
            if each.strip():
                yield each
                return

    hub.records.observations.add(SEEN._replace(name="before"))
    open_ = [await pages.session.get(f"{pages.url}{PAGE}?follow=1") for _ in range(MAX_FOLLOWERS)]
    async with pages.session.get(f"{pages.url}{PAGE}?follow=1") as refused:
        assert refused.status == 429
    hub.records.observations.add(SEEN._replace(name="after"))
    for each in open_:
        lines = [json.loads(line) async for line in some(each)]
        assert [line["name"] for line in lines] == ["after"]
        each.close()


async def test_a_user_beside_plain_users_is_refused(parts: HubWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(*_: object) -> int:
        return 12345

    monkeypatch.setattr("addons.ui.handlers.peer_user", nobody)
    async with served(parts.running_hub(plain_users="root")) as refusing:
        assert (await refusing.ask(PAGE))[0] == 403


@pytest.mark.parametrize("query", [{"verdict": "lost"}, {"since": "5m"}, {"since": "1" * 10}])
def test_a_malformed_query_is_refused(query: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(query))):
        wanted_of(query, 0.0)


class Page(NamedTuple):
    attachments: Attachments
    pages: AdminClient

    async def post(self, body: bytes, key: str = "") -> int:
        return (await self.pages.ask(f"/debug/flows?key={key or self.attachments.key}", body))[0]


@pytest.fixture
async def page(hub: RunningHub, request: pytest.FixtureRequest) -> AsyncIterator[Page]:
    settings = replace(hub.settings, allow_hold=getattr(request, "param", True))
    attachments = Attachments(lambda: settings, Drills())
    async with served(hub, attachments) as pages:
        with taddons.context():
            yield Page(attachments, pages)


FILTER = tnetstring.dumps({"filter": "~all"})


async def test_only_the_attached_process_may_decide_about_flows(page: Page) -> None:
    assert await page.post(FILTER) == 409, "nobody is attached"
    feed, _ = page.attachments.attach()
    assert await page.post(FILTER, "of-another") == 409
    assert await page.post(FILTER) == 204
    page.attachments.detach(feed)
    assert await page.post(FILTER) == 409


@pytest.mark.parametrize("page", [False], indirect=True)
async def test_no_flow_is_intercepted_without_permission(page: Page) -> None:
    feed, _ = page.attachments.attach()
    assert await page.post(FILTER) == 403
    page.attachments.detach(feed)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", 400),
        (b"none", 400),
        (tnetstring.dumps(["a list"]), 400),
        (b"1:a,", 400),
        (b"x" * (MAX_DECISION + 1), 413),
    ],
)
async def test_a_malformed_decision_is_refused(page: Page, body: bytes, code: int) -> None:
    feed, _ = page.attachments.attach()
    assert await page.post(body) == code
    page.attachments.detach(feed)


async def test_a_hub_with_an_interface_has_no_feed(page: Page) -> None:
    with taddons.context(page.attachments):
        code, text = await page.pages.ask("/debug/flows")
        assert (code, "has an interface of mitmproxy itself" in text) == (409, True)
        assert await page.post(FILTER) == 409
