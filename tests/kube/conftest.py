"""Fixtures that record the bounds that are reached."""

from __future__ import annotations

import pytest

from kube import bounds


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the bounds that the test reaches."""
    names: list[str] = []
    monkeypatch.setattr(bounds, "_listeners", [names.append])
    return names
