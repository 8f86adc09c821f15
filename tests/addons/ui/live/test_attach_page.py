"""Who may decide about held flows, and what the page takes."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import NamedTuple

import aiohttp
import pytest
from mitmproxy.io import tnetstring
from mitmproxy.test import taddons

from addons.link.drills import Drills
from addons.ui.attached.attachments import Attachments
from addons.ui.live.attach_page import MAX_DECISION
from addons.ui.masking import USUALLY
from tests.addons.support.hub_parts import HubParts
from tests.addons.support.report_parts import running_hub, served


class Page(NamedTuple):
    attachments: Attachments
    session: aiohttp.ClientSession
    url: str

    async def post(self, body: bytes, key: str = "") -> int:
        async with self.session.post(
            f"{self.url}?key={key or self.attachments.key}", data=io.BytesIO(body)
        ) as answer:
            return answer.status


class Leave:
    """Whether the hub lets anybody hold."""

    is_given = True


@pytest.fixture
async def page(parts: HubParts) -> AsyncIterator[Page]:
    attachments = Attachments(lambda: USUALLY, Drills(lambda: None), lambda: Leave.is_given)
    hub = replace(running_hub(parts), attachments=attachments)
    async with served(hub) as (_, session, url):
        with taddons.context():
            yield Page(attachments, session, f"{url}/debug/flows")


FILTER = tnetstring.dumps({"filter": "~all"})


async def test_the_attached_process_alone_decides(page: Page) -> None:
    assert await page.post(FILTER) == 409, "nobody is attached"
    feed, _ = page.attachments.attach()
    assert await page.post(FILTER, "of-another") == 409
    assert await page.post(FILTER) == 204
    page.attachments.detach(feed)
    assert await page.post(FILTER) == 409


async def test_without_leave_nobody_holds(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leave, "is_given", False)
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
