"""A cloud, and reflectors that end with the test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.cloud.scriptable import ScriptableCloud
from tests.kube.support.reflecting import Start, reflecting


@pytest.fixture(autouse=True)
def packed_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compress even short texts in stores, as the objects of these tests are small."""
    monkeypatch.setattr("kube.packed_text.COMPRESSION_THRESHOLD", 1)


@pytest.fixture
async def cloud() -> AsyncIterator[ScriptableCloud]:
    async with ScriptableCloud() as made:
        yield made


@pytest.fixture
async def start(cloud: ScriptableCloud) -> AsyncIterator[Start]:
    async with reflecting(cloud) as run:
        yield run
