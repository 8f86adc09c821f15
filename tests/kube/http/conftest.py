"""The hub's HTTP/2 session, closed behind each test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from kube.http.http2 import Http2Session


@pytest.fixture
async def session() -> AsyncIterator[Http2Session]:
    made = Http2Session()
    yield made
    made.close()
    await asyncio.sleep(0)  # aborted transports end with the next turn of the loop
