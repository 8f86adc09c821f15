"""A terminal for tests of full-screen programs: tmux runs the program, sends keys, and returns the screen."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest

WAIT = 40.0
"""Seconds for a program to show a text, which usually takes a fraction of a second."""


class Terminal:
    """One program on its own screen. A context manager; skips the test without tmux."""

    def __init__(self, folder: Path, command: Sequence[str], width: int = 160, height: int = 40) -> None:
        if shutil.which("tmux") is None:
            pytest.skip("no tmux on this machine (Debian: apt-get install tmux)")
        self._socket = folder / "tmux"
        self._command = command
        self._size = (str(width), str(height))

    async def __aenter__(self) -> Self:
        width, height = self._size
        await self._tmux("-f", "/dev/null", "new-session", "-d", "-x", width, "-y", height, *self._command)
        await self._tmux("set-option", "-g", "remain-on-exit", "on")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tmux("kill-server")

    async def press(self, *keys: str) -> None:
        """Type keys, by tmux' names: `Enter`, `Right`, or text."""
        await self._tmux("send-keys", *keys)

    async def screen(self) -> str:
        """Return the text on the screen."""
        return await self._tmux("capture-pane", "-p")

    async def until(self, *texts: str) -> str:
        """Wait until the screen shows all of these texts; return it; TimeoutError with the screen otherwise."""
        try:
            async with asyncio.timeout(WAIT):
                while True:
                    shown = await self.screen()
                    if all(text in shown for text in texts):
                        return shown
                    await asyncio.sleep(0.1)  # a screen sends no notification when it changes
        except TimeoutError:
            raise TimeoutError(f"{texts} are not all shown:\n{await self.screen()}") from None

    async def ended(self) -> None:
        """Return once the program has ended. The screen after that varies with tmux."""
        async with asyncio.timeout(WAIT):
            while (await self._tmux("display-message", "-p", "#{pane_dead}")).strip() != "1":  # noqa: ASYNC110 - tmux has no notification
                await asyncio.sleep(0.1)

    async def _tmux(self, *arguments: str) -> str:
        tmux = await asyncio.create_subprocess_exec(
            "tmux", "-S", str(self._socket), *arguments, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await tmux.communicate()
        if tmux.returncode:
            raise RuntimeError(f"tmux {arguments[0]} ended with {tmux.returncode}")
        return said.decode()
