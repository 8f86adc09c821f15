"""Starts a source that may have a copy on disk: read the copy, let the reflector resume from it, then show the store.

The disk and the cloud are read at the same time, so that neither waits for the other where one is slow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kube.disk.writer import PATIENCE
from kube.errors import StatusError
from kube.reflector.reflector import Reflector
from kube.reflector.state import State
from kube.store.store import Store

CONFIRM = 1.0
"""Seconds that clients wait for the reflector to resume from the copy. Then they are served the copy as it is."""
SETTLE = 0.1
"""Seconds from a resumed watch's answer to the events that happened since the copy's version."""


class StartFromDisk:
    """The start of one source. While it is `pending` no client may see the store."""

    def __init__(
        self,
        restore: Callable[[], Awaitable[StatusError | None]],
        store: Store,
        reflector: Reflector,
        name: str,
    ) -> None:
        """`restore` fills the store from disk, or returns the refusal that was kept in place of a copy."""
        self.pending = True
        self._restore = restore
        self._store = store
        self._reflector = reflector
        self._name = name

    async def run(self) -> None:
        """Start the source, then run its reflector until cancelled."""
        reflector = self._reflector
        reading = asyncio.create_task(self._read(), name=f"copy of {self._name}")
        reflecting: asyncio.Task[None] | None = None
        try:
            await asyncio.wait((reading,), timeout=PATIENCE)
            was_read = reading.done()
            reflecting = asyncio.create_task(reflector.run(), name=f"reflector {self._name}")
            if was_read:
                await self._confirm()
            else:
                await self._first_of(reading)
            self.pending = False
            reflector.changed.notify()
            await reflecting
        finally:
            reading.cancel()
            if reflecting is not None:
                reflecting.cancel()

    async def _read(self) -> None:
        refusal = await self._restore()
        if refusal is not None and not self._store.complete:
            self._reflector.remember_refusal(refusal)

    async def _first_of(self, reading: asyncio.Task[None]) -> None:
        """Return when the store has the copy or the cloud's list, whichever comes first."""
        while not reading.done() and not self._store.complete:
            moved = asyncio.ensure_future(self._store.next_update())
            try:
                await asyncio.wait((reading, moved), return_when=asyncio.FIRST_COMPLETED)
            finally:
                moved.cancel()

    async def _confirm(self) -> None:
        """Wait until the reflector has resumed from the copy, has listed instead, or has failed."""
        reflector = self._reflector
        try:
            async with asyncio.timeout(CONFIRM):
                while (
                    not reflector.lists and reflector.state is not State.WATCHING and reflector.error is None
                ):
                    await reflector.changed.wait()
                if not reflector.lists and reflector.state is State.WATCHING:
                    await asyncio.sleep(SETTLE)
        except TimeoutError:
            pass
