"""Stores in these tests keep texts compressed."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def packed_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compress even short texts in stores, as the objects of these tests are small."""
    monkeypatch.setattr("kube.packed_text.COMPRESSION_THRESHOLD", 1)
