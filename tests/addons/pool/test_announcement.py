"""The annotation by which a hub says that it can lead."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from addons.pool.announcement import Announcement
from kube.http.client import Unreachable
from tests.addons.support.scripted_client import Asked, ScriptedClient
from tests.support.background import beside


class Node:
    """What the cloud has of the annotation."""

    def __init__(self) -> None:
        self.is_up = True
        self.writes: asyncio.Queue[str] = asyncio.Queue()
        self.client = ScriptedClient(self._answer)

    def _answer(self, asked: Asked) -> dict[str, Any]:
        assert (asked.method, asked.path) == ("PATCH", "/api/v1/nodes/n1")
        assert asked.content_type == "application/merge-patch+json"
        if not self.is_up:
            self.is_up = True
            raise Unreachable("gone")
        self.writes.put_nowait(json.loads(asked.body)["metadata"]["annotations"]["edgehub.io/peer"])
        return {}


@asynccontextmanager
async def announced(node: Node) -> AsyncIterator[Announcement]:
    made = Announcement("n1", 10269, node.client)
    async with beside(made.run()):
        yield made


async def test_the_port_is_announced_and_taken_back() -> None:
    node = Node()
    async with announced(node) as announcement:
        announcement.announce(True)
        assert await node.writes.get() == "10269"
        announcement.announce(True)
        announcement.announce(False)
        assert await node.writes.get() == "0"
    assert node.writes.empty()


async def test_what_the_cloud_did_not_take_is_written_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    node = Node()
    node.is_up = False
    async with announced(node) as announcement:
        announcement.announce(True)
        assert await node.writes.get() == "10269"
    assert "not written yet: gone" in caplog.text
