"""A cloud of its own for each test, and an HTTP caller to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.cloud.caller import Caller
from tests.cloud.scriptable import ScriptableCloud


@pytest.fixture
async def cloud() -> AsyncIterator[ScriptableCloud]:
    async with ScriptableCloud() as cloud:
        yield cloud


@pytest.fixture
async def caller(cloud: ScriptableCloud) -> AsyncIterator[Caller]:
    async with Caller(cloud.url) as caller:
        yield caller
