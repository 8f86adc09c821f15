"""Fixtures for cached copies on the test's own disk."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from addons.offline.copies import DiskCopies
from addons.offline.tables.disk_access import DiskAccess
from kube.disk.writer import DiskWriter
from kube.schemas.published import messages
from tests.addons.support.copying import copies_in
from tests.addons.support.devices import Device

messages()  # a hub opens it before it serves


@pytest.fixture
async def copies(tmp_path: Path) -> AsyncIterator[DiskCopies]:
    async with copies_in(tmp_path) as made:
        yield made


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return Device(tmp_path)


@pytest.fixture
async def access(device: Device) -> AsyncIterator[DiskAccess]:
    made = DiskAccess(device, DiskWriter())
    await made.rows("none")
    device.batches.clear()
    yield made
    device.goes_on.set()
    made.close()
