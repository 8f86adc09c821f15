"""A node in a history: its link to the cloud, its disk, and the hub that runs on it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from addons.offline.tables.disk_access import RETRY
from tests.histories.cloud import Cloud
from tests.histories.hub import DISK_DELAY, Disk, Hub, LeaderOf
from tests.histories.line import LATENCY, Line, Link

SLOW = 1.5
"""Seconds that a slow disk takes for an operation: more than the hub's time-out."""


class Node:
    """A node: its link to the cloud, its disk, and the hub that runs on it, if any."""

    def __init__(self, name: str, folder: Path, cloud: Cloud, leader_of: LeaderOf) -> None:
        self.name = name
        self.line = Line(cloud)
        self.disk = Disk()
        self.hub: Hub | None = None
        self.leaders = 0
        self.is_split = False
        """True if no leader can be reached."""
        self._past_edits = 0
        self.doubted_until = 0.0
        self._folder, self._leader_of = folder / name, leader_of

    @property
    def edits(self) -> int:
        """Return the number of changes of the rules in force here."""
        return self._past_edits + (self.hub.edits if self.hub is not None else 0)

    async def start(self) -> None:
        if self.hub is None:
            self._folder.mkdir(exist_ok=True)
            self.line.forget()
            hub = Hub(self.name, self._folder, self.line, self.disk, self._leader_of)
            await hub.start(leaders=self.leaders)
            self.hub = hub

    async def stop(self) -> None:
        if self.hub is not None:
            hub, self.hub = self.hub, None
            self._past_edits += hub.edits
            await hub.stop()

    async def kill(self) -> None:
        if self.hub is not None:
            hub, self.hub = self.hub, None
            self._past_edits += hub.edits
            await hub.kill()

    def set_disk(self, state: str) -> None:
        """Make the disk normal (0), full (1) or slow."""
        self.disk.delay = SLOW if state == "slow" else DISK_DELAY
        if self.hub is not None:
            self.doubted_until = asyncio.get_running_loop().time() + RETRY if self.hub.disk_is_full else 0.0
            self.hub.disk_is_full = state == "1"

    @property
    def keeps(self) -> bool:
        """Return True if accepted writes reach the disk before the response: after a full disk the hub retries
        later."""
        hub, now = self.hub, asyncio.get_running_loop().time()
        is_well = self.disk.delay == DISK_DELAY and now > self.doubted_until
        return hub is not None and not hub.disk_is_full and is_well

    def split(self, is_split: bool) -> None:
        """Disconnect the node from its pool's leaders, or reconnect it."""
        self.is_split = is_split
        if is_split and self.hub is not None:
            self.hub.cut_leaders()

    def damage(self) -> None:
        """Make the database unreadable, between two hub processes."""
        file = self._folder / "cache" / "cache.db"
        if self.hub is None and file.exists():
            file.write_bytes(b"damaged" + file.read_bytes()[7:])

    def sweep(self) -> None:
        """Close unused views and sources, as the hub does after some minutes."""
        if self.hub is not None:
            sources = self.hub.parts.sources
            sources._idle, idle = -1.0, sources._idle
            sources._sweep()
            sources._idle = idle

    async def recover(self) -> None:
        """End all faults here."""
        self.line.floods = ""
        self.line.latency = LATENCY
        self.is_split = False
        self.line.stall()
        self.line.set(Link.UP)
        await self.start()
        self.set_disk("0")

    def remind(self) -> None:
        """Send bookmarks, as the cloud does each minute."""
        if self.hub is not None:
            self.hub.parts.sources._remind()
