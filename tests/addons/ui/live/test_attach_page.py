"""Who may decide about held flows, and what the page takes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import NamedTuple

import pytest
from mitmproxy.io import tnetstring
from mitmproxy.test import taddons

from addons.link.drills import Drills
from addons.ui.attached.attachments import Attachments
from addons.ui.live.attach_page import MAX_DECISION
from addons.ui.running_hub import RunningHub
from tests.addons.support.report_parts import AdminClient, served


class Page(NamedTuple):
    attachments: Attachments
    pages: AdminClient

    async def post(self, body: bytes, key: str = "") -> int:
        return (await self.pages.ask(f"/debug/flows?key={key or self.attachments.key}", body))[0]


@pytest.fixture
async def page(hub: RunningHub, request: pytest.FixtureRequest) -> AsyncIterator[Page]:
    settings = replace(hub.settings, allow_hold=getattr(request, "param", True))
    attachments = Attachments(lambda: settings, Drills(lambda: None))
    async with served(hub, attachments) as pages:
        with taddons.context():
            yield Page(attachments, pages)


FILTER = tnetstring.dumps({"filter": "~all"})


async def test_the_attached_process_alone_decides(page: Page) -> None:
    assert await page.post(FILTER) == 409, "nobody is attached"
    feed, _ = page.attachments.attach()
    assert await page.post(FILTER, "of-another") == 409
    assert await page.post(FILTER) == 204
    page.attachments.detach(feed)
    assert await page.post(FILTER) == 409


@pytest.mark.parametrize("page", [False], indirect=True)
async def test_without_leave_nobody_holds(page: Page) -> None:
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
async def test_what_is_no_decision(page: Page, body: bytes, code: int) -> None:
    feed, _ = page.attachments.attach()
    assert await page.post(body) == code
    page.attachments.detach(feed)


async def test_a_hub_with_an_interface_has_no_feed(page: Page) -> None:
    with taddons.context(page.attachments):
        code, text = await page.pages.ask("/debug/flows")
        assert (code, "has an interface of mitmproxy itself" in text) == (409, True)
        assert await page.post(FILTER) == 409
