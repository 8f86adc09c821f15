"""Copies on a disk for tests of sources."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from addons.offline.copies import DiskCopies
from addons.offline.tables.disk_access import DiskAccess
from kube.disk.database import Disk
from kube.disk.writer import DiskWriter
from tests.addons.support.hub_world import HubWorld


@pytest.fixture
async def copied(parts: HubWorld, tmp_path: Path) -> AsyncIterator[None]:
    """Let the sources have copies on a disk."""
    copies = DiskCopies(DiskAccess(Disk(tmp_path), DiskWriter()))
    await copies.open()
    parts.sources._copies = copies
    yield
    copies.access.close()
