"""The hub's HTTP/2 session, closed behind each test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.kube.support.cleartext import CleartextSession


@pytest.fixture
async def session() -> AsyncIterator[CleartextSession]:
    made = CleartextSession()
    yield made
    made.close()
    await asyncio.sleep(0)  # aborted transports end with the next turn of the loop
