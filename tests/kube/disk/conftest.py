"""An open disk for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kube.disk.database import Disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "cache")
    made.open()
    yield made
    made.close()
