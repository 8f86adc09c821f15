"""Copies on a disk of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from addons.offline.copies import DiskCopies
from tests.addons.support.copying import copies_in


@pytest.fixture
async def copies(tmp_path: Path) -> AsyncIterator[DiskCopies]:
    async with copies_in(tmp_path) as made:
        yield made
