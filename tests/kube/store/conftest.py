"""A cloud, and reflectors of it that end with the test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.cloud.scriptable import ScriptableCloud
from tests.kube.support.reflecting import Start, reflecting


@pytest.fixture
async def cloud() -> AsyncIterator[ScriptableCloud]:
    async with ScriptableCloud() as made:
        yield made


@pytest.fixture
async def start(cloud: ScriptableCloud) -> AsyncIterator[Start]:
    async with reflecting(cloud) as run:
        yield run
