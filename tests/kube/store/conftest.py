"""Stores of these tests keep texts packed."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def packed_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores keep texts packed however short they are: the objects of these tests are small."""
    monkeypatch.setattr("kube.packed_text.WORTH_PACKING", 1)
