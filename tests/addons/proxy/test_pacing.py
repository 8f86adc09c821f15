"""A connection whose bytes the hub forwards at a pace."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from mitmproxy import connection
from mitmproxy.test import tflow

from addons.proxy.handlers import hub_handler
from addons.proxy.pacing import pace, read_at


class Paces:
    """Remembers what it let go on."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, bool]] = []

    async def __call__(self, size: int, *, is_first: bool) -> None:
        self.seen.append((size, is_first))


async def test_what_came_just_now_is_told_from_what_was_there() -> None:
    reader, paces = asyncio.StreamReader(), Paces()
    read_at(reader, paces)
    reading = asyncio.create_task(reader.read(10))
    await asyncio.sleep(0.05)
    reader.feed_data(b"0123456789abc")
    assert await reading == b"0123456789"
    assert paces.seen == [(10, True)]
    assert await reader.read(10) == b"abc"
    assert paces.seen[1][0] == 3


async def test_a_pace_may_break_the_connection() -> None:
    async def broken(size: int, *, is_first: bool) -> None:
        raise ConnectionResetError

    reader = asyncio.StreamReader()
    reader.feed_data(b"x")
    read_at(reader, broken)
    with pytest.raises(ConnectionResetError):
        await reader.read(1)


class Handler:
    """Stands for the handler of a client's connection."""

    def __init__(self, transports: dict[connection.Server, Any]) -> None:
        self.transports = transports


async def test_an_upstream_connection_is_read_at_a_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    client, server, paces = tflow.tclient_conn(), connection.Server(address=("a", 1)), Paces()
    transport = SimpleNamespace(reader=asyncio.StreamReader())
    transport.reader.feed_data(b"x")
    handler: Any = Handler({server: transport})
    monkeypatch.setitem(hub_handler._handlers, client.id, handler)
    pace(client, server, paces)
    pace(tflow.tclient_conn(), server, paces)
    assert await transport.reader.read(1) == b"x"
    assert [size for size, _ in paces.seen] == [1]
