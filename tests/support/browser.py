"""A headless Chromium for tests of pages, controlled by its DevTools protocol."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest

START = 60.0
"""Seconds for the browser to start; one on an idle machine."""
WAIT = 60.0
"""Seconds for a page to show a text; it takes fractions of a second."""

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run")
_KEYS = {"ArrowDown": 40, "Enter": 13}
"""The keys that tests press, with the Windows key codes that browsers expect."""


def find_browser() -> str:
    """Return the browser's program; skip the test if there is none."""
    found = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if found is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    return found


class Browser:
    """One page in a separate browser. A context manager."""

    def __init__(self, folder: Path, width: int = 1600, height: int = 900) -> None:
        self._folder = folder / "chromium"
        self._size = (width, height)
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self.complaints: list[str] = []
        """The page's logged errors and warnings, including violations of its policy."""

    async def __aenter__(self) -> Self:
        program = find_browser()
        self._folder.mkdir(parents=True)
        flags = (*_FLAGS, f"--window-size={self._size[0]},{self._size[1]}", f"--user-data-dir={self._folder}")
        self._process = await asyncio.create_subprocess_exec(
            program,
            *flags,
            "--remote-debugging-port=0",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        self._session = aiohttp.ClientSession()
        try:
            self._socket = await self._session.ws_connect(await self._address(), max_msg_size=0)
        except BaseException:
            await self._end()
            raise
        self._reading = asyncio.create_task(self._read(), name="browser")
        await self.call("Log.enable")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reading.cancel()
        await self._socket.close()
        await self._end()

    async def _end(self) -> None:
        await self._session.close()
        os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    async def open(self, url: str) -> None:
        """Load a page, and wait for its scripts: earlier key presses would be lost."""
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        said = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in said:
            raise RuntimeError(f"{script}: {said['exceptionDetails']}")
        return said["result"].get("value")

    async def until(self, script: str) -> Any:
        """Return the value of an expression as soon as it is true; TimeoutError with the page's text if it never is."""
        fault: RuntimeError | None = None
        try:
            async with asyncio.timeout(WAIT):
                while True:
                    try:
                        if value := await self.run(script):
                            return value
                    except (
                        RuntimeError
                    ) as error:  # a loading page lacks elements, and its scripts are aborted
                        fault = error
                    await asyncio.sleep(0.1)  # a page sends no notification when it changes
        except TimeoutError:
            raise TimeoutError(f"{script} is not true of: {await self.text()}; last fault: {fault}") from None

    async def until_text(self, *texts: str) -> str:
        """Wait until the page contains all of these texts; return its text."""
        wanted = json.dumps(texts)
        await self.until(f"{wanted}.every(t => document.body && document.body.innerText.includes(t))")
        return await self.text()

    async def text(self) -> str:
        """Return the visible text of the page."""
        return str(await self.run("document.body ? document.body.innerText : ''"))

    async def click(self, script: str) -> None:
        """Click the element that an expression returns, as soon as it exists."""
        await self.until(f"(() => {{ const e = {script}; if (!e) return false; e.click(); return true; }})()")

    async def focus(self, script: str) -> None:
        """Focus the element that an expression returns; text typed before is lost."""
        await self.until(
            f"(() => {{ const e = {script}; e?.focus(); return e && document.activeElement === e }})()"
        )

    async def type(self, text: str) -> None:
        """Type text into the focused element."""
        await self.call("Input.insertText", text=text)

    async def press(self, key: str) -> None:
        """Press a key, by its name in JavaScript."""
        for event in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent", type=event, key=key, code=key, windowsVirtualKeyCode=_KEYS[key]
            )

    async def resize(self, width: int, height: int) -> None:
        """Set the size of the screen in pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.call("Emulation.setDeviceMetricsOverride", **size)

    async def _address(self) -> str:
        port_file = self._folder / "DevToolsActivePort"
        async with asyncio.timeout(START):
            while True:
                lines = port_file.read_text().splitlines() if port_file.exists() else []
                if len(lines) == 2:
                    pages = f"http://127.0.0.1:{lines[0]}/json/list"
                    async with self._session.get(pages) as answer:
                        found = [each for each in await answer.json() if each["type"] == "page"]
                    if found:
                        return str(found[0]["webSocketDebuggerUrl"])
                await asyncio.sleep(0.05)

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(WAIT):
            said: dict[str, Any] = await answer
        if "error" in said:
            raise RuntimeError(f"{method}: {said['error']}")
        result: dict[str, Any] = said["result"]
        return result

    async def _read(self) -> None:
        async for message in self._socket:
            said = json.loads(message.data)
            if said.get("method") == "Log.entryAdded":
                self.complaints.append(said["params"]["entry"]["text"])
            waiting = self._waiting.pop(said.get("id", 0), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(said)
