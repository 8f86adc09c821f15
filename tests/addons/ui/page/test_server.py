"""The status page over HTTP: its document, files, events and rule trials."""

from __future__ import annotations

import asyncio
import json

import pytest

from addons.telemetry import metrics
from addons.ui.page import server
from addons.ui.page.server import MAX_LISTENERS, POLICY
from addons.ui.running_hub import RunningHub
from tests.addons.support.admin_client import AdminClient


async def shown(pages: AdminClient, path: str) -> tuple[int, str, str]:
    """Return code, media type and text; check that the response has the page's policy."""
    async with pages.session.get(pages.url + path) as answer:
        assert answer.headers["Content-Security-Policy"] == POLICY
        return answer.status, answer.content_type, await answer.text()


async def test_the_page_is_readable_without_scripts(pages: AdminClient) -> None:
    code, media_type, html = await shown(pages, "/?component=chosen&resource=services")
    assert (code, media_type) == (200, "text/html")
    for phrase in ("Online for", "/api/v1/services", "discardcloudservice", "LoadBalancer"):
        assert phrase in html
    assert html.count("<section") == html.count("</section>") == 10
    assert "<script src=" in html
    assert html.count("<script") == 1, "the policy lets no script in the document run"
    assert " style=" not in html
    assert "http://" not in html.replace("http://127.0.0.1", ""), "nothing comes from elsewhere"


@pytest.mark.parametrize(("name", "media_type"), [("page.css", "text/css"), ("page.js", "text/javascript")])
async def test_the_files_of_the_page_are_served(pages: AdminClient, name: str, media_type: str) -> None:
    code, found, text = await shown(pages, f"/{name}")
    assert (code, found) == (200, media_type)
    assert text


async def test_the_page_streams_its_changed_sections(
    pages: AdminClient, hub: RunningHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "INTERVAL", 0.01)
    async with pages.session.get(f"{pages.url}/events") as stream:
        assert stream.content_type == "text/event-stream"
        first = json.loads((await stream.content.readline()).removeprefix(b"data: "))
        assert {"state", "chain", "log", "title"} < set(first)
        hub.cloud.servers[0].failed("no route")
        while True:
            line = await stream.content.readline()
            if line.startswith(b"data: ") and "state" in (news := json.loads(line.removeprefix(b"data: "))):
                break
        assert "Never reached" in news["state"]
        assert "sources" not in news or len(news) < len(first)
        pages.server.close()
        await stream.content.read()
        assert stream.content.at_eof(), "the end of the hub ends the stream"


async def test_open_pages_are_bounded_and_a_disconnect_is_no_error(
    pages: AdminClient, caplog: pytest.LogCaptureFixture
) -> None:
    before = metrics.ADMIN_REFUSED.labels("listener")._value.get()
    streams = [await pages.session.get(f"{pages.url}/events") for _ in range(MAX_LISTENERS)]
    async with pages.session.get(f"{pages.url}/events") as refused:
        assert refused.status == 429
    assert metrics.ADMIN_REFUSED.labels("listener")._value.get() == before + 1
    for each in streams:
        each.close()
    async with asyncio.timeout(20):
        code = 429
        while code == 429:
            async with pages.session.get(f"{pages.url}/events") as again:
                code = again.status
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("given", "phrase"),
    [(b"discardcloudservice: seen\n", "1 object "), (b"a: [", "not valid YAML"), (b"<i>: x", "&lt;i&gt;")],
)
async def test_a_rule_trial_is_posted(pages: AdminClient, given: bytes, phrase: str) -> None:
    code, html = await pages.ask("/try", given)
    assert (code, phrase in html) == (200, True)
    assert "<i>" not in html


async def test_requests_from_another_site_are_refused(pages: AdminClient) -> None:
    evil = {"Origin": "https://evil.example"}
    for method, path in (("POST", "/try"), ("GET", "/"), ("GET", "/events")):
        async with pages.session.request(method, pages.url + path, headers=evil) as answer:
            assert answer.status == 403
