"""A headless Chromium, told what to do by its DevTools protocol; tests that need one skip where there is none."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.addons.support.observed import STEP

NAMES = ("chromium", "chromium-browser", "google-chrome")
KEYS = {"ArrowDown": 40}
"""The keys that tests press, with the numbers that Windows gave them, by which browsers know them."""
PATIENCE = 60.0
"""Seconds that a browser on a busy machine may take for anything."""


def program() -> str:
    """The browser; skips the test where there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("needs a browser: apt-get install chromium")
    return found


class Tab:
    """One page."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self.complaints: list[str] = []
        """What the page logged as an error or a warning, violations of its policy among them."""

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command."""
        self._number += 1
        number = self._number
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(PATIENCE):
            while True:
                told: dict[str, Any] = json.loads(await self._socket.receive_str())
                if told.get("method") == "Log.entryAdded":
                    self.complaints.append(told["params"]["entry"]["text"])
                if told.get("id") == number:
                    assert "error" not in told, told
                    result: dict[str, Any] = told["result"]
                    return result

    async def open(self, url: str) -> None:
        await self.ask("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def value(self, expression: str) -> Any:
        """What an expression of JavaScript comes to; None while the page changes."""
        told = await self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        return told["result"].get("value")

    async def until(self, expression: str) -> None:
        """Return once an expression is true."""
        async with asyncio.timeout(PATIENCE):
            while not await self.value(expression):  # noqa: ASYNC110 - the page tells nobody
                await asyncio.sleep(STEP)

    async def type(self, text: str) -> None:
        """Text into the element that has the focus."""
        await self.ask("Input.insertText", text=text)

    async def press(self, key: str) -> None:
        """A key, by its name in JavaScript."""
        for kind in ("keyDown", "keyUp"):
            await self.ask(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key]
            )

    async def screenshot(self, path: Path, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.ask("Emulation.setDeviceMetricsOverride", **size)
        shot = await self.ask("Page.captureScreenshot", format="png")
        await asyncio.to_thread(path.write_bytes, base64.b64decode(shot["data"]))


@contextlib.asynccontextmanager
async def tab(folder: Path) -> AsyncIterator[Tab]:
    """A page of a browser of its own, whose profile is in `folder`."""
    flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "about:blank")
    process = await asyncio.create_subprocess_exec(
        program(),
        f"--user-data-dir={folder}",
        *flags,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        port = await _port(folder / "DevToolsActivePort")
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                (page,) = [each for each in await answer.json() if each["type"] == "page"]
            async with session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                made = Tab(socket)
                await made.ask("Log.enable")
                await made.ask("Page.enable")
                yield made
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _port(file: Path) -> int:
    """The port that the browser has chosen."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(FileNotFoundError, IndexError, ValueError):
                return int((await asyncio.to_thread(file.read_text)).splitlines()[0])
            await asyncio.sleep(STEP)
