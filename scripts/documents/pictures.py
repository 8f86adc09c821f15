"""`scripts/pictures`: takes the pictures of `docs/`, of the demo's node in a headless Chromium."""

from __future__ import annotations

import asyncio
import base64
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from scripts.documents.tables import DOCS
from tests.hub.support.process import ROOT
from tests.support.browser import Browser

SETTLED = 75.0
"""Seconds until the node has something to show: events in the cloud, and a minute of timeline."""
PAGE, WEB = re.compile(r"The hub's page: +(\S+)"), re.compile(r"edgehub: open (\S+)")
EDIT = "filter_servicetopology: flanneld/endpointslices#list;watch\ndiscardcloudservice: inventory\n"


@asynccontextmanager
async def demo() -> AsyncIterator[tuple[str, str]]:
    """Run the demo; yield the addresses of the hub's page and of mitmproxy's interface."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(ROOT / "scripts/demo", "--ui", "web", stdout=pipe)
    assert process.stdout is not None
    said = ""
    while not (PAGE.search(said) and WEB.search(said)):
        said += (await process.stdout.readline()).decode()
    reading = asyncio.create_task(process.stdout.read())
    try:
        yield PAGE.findall(said)[0], WEB.findall(said)[0]
    finally:
        process.terminate()
        await process.wait()
        await reading


async def take(browser: Browser, name: str, selector: str = "") -> None:
    """Take a picture of the complete page, or of an element."""
    clip = {}
    if selector:
        box = await browser.run(
            f"(r => [r.left, r.top + scrollY, r.width, r.height])(document.querySelector({selector!r})"
            ".getBoundingClientRect())"
        )
        clip = {"clip": {**dict(zip(("x", "y", "width", "height"), box, strict=True)), "scale": 1}}
    shot = await browser.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, **clip)
    (DOCS / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))


async def take_all(browser: Browser, page: str, web: str) -> None:
    await browser.open(web)
    await browser.until_text("kube-proxy ▸ view", "inventory")
    await take(browser, "flows")
    await browser.open(page)
    await browser.until_text("Online for", "over the link", "B/s")
    await take(browser, "page-wide")
    await take(browser, "bytes", "section:has(#components)")
    await browser.run("document.getElementById('edit').focus(), document.getElementById('edit').select()")
    await browser.type(EDIT)
    await browser.until("document.getElementById('trial').innerText.includes('would be lost')")
    await take(browser, "try", "section:has(#trial)")
    await browser.open(f"{page}/?component=kube-proxy&resource=services")
    await browser.until("document.getElementById('explained').innerText.includes('hidden')")
    await take(browser, "explain", "section:has(#explained)")
    await browser.resize(390, 844)
    await browser.open(page)
    await browser.until_text("Online for", "over the link", "B/s")
    await take(browser, "page-narrow")
    await browser.resize(1280, 720)
    drill = f"{page}/debug/link?link=offline&minutes=1"
    async with aiohttp.ClientSession() as session, session.post(drill) as answer:
        answer.raise_for_status()
    await browser.until_text("DRILL, Offline for")
    await take(browser, "offline", "header")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with demo() as (page, web), Browser(Path(folder), 1280, 720) as browser:
            await asyncio.sleep(SETTLED)
            await take_all(browser, page, web)


if __name__ == "__main__":
    asyncio.run(main())
