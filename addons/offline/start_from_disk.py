"""How a source begins whose copy may be on disk: read it, let the cloud go on from there, then show it.

A slow disk is not waited for while the cloud answers, nor the other way round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kube.disk.writer import PATIENCE
from kube.errors import StatusError
from kube.store.reflector import Reflector, State
from kube.store.store import Store

CONFIRM = 1.0
"""Seconds that clients of a copy from disk wait for the cloud to go on from it; then they get it as it is."""
SETTLE = 0.1
"""Seconds in which a cloud tells what happened since a version, once the watch from there is open."""


class StartFromDisk:
    """One beginning. While it is `pending` the store may not be shown."""

    def __init__(
        self,
        restore: Callable[[], Awaitable[StatusError | None]],
        store: Store,
        reflector: Reflector,
        trusts: Callable[[int], bool],
        name: str,
    ) -> None:
        """`restore` fills the store from disk, or returns the refusal that was kept in place of a copy.

        The reflector lists anew when `trusts` denies the version of the copy.
        """
        self.pending = True
        self._restore = restore
        self._store = store
        self._reflector = reflector
        self._trusts = trusts
        self._name = name

    async def run(self) -> None:
        """Begin, then be the reflector until cancelled."""
        reflector = self._reflector
        reading = asyncio.create_task(self._read(), name=f"copy of {self._name}")
        reflecting: asyncio.Task[None] | None = None
        try:
            await asyncio.wait((reading,), timeout=PATIENCE)
            was_read = reading.done()
            reflecting = asyncio.create_task(reflector.run(), name=f"reflector {self._name}")
            if was_read:
                if not self._trusts(self._store.version):
                    await asyncio.sleep(0)
                    reflector.relist()
                await self._confirm()
            else:
                await self._either(reading)
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

    async def _either(self, reading: asyncio.Task[None]) -> None:
        """Return with the copy or with the cloud's answer, whichever comes first."""
        while not reading.done() and not self._store.complete:
            moved = asyncio.ensure_future(self._store.next_update())
            try:
                await asyncio.wait((reading, moved), return_when=asyncio.FIRST_COMPLETED)
            finally:
                moved.cancel()

    async def _confirm(self) -> None:
        """Wait until the cloud goes on from the copy, or is known not to."""
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
