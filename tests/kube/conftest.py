"""Tests of what both encodings share run in each; bounds that are reached are noted."""

from __future__ import annotations

import pytest

from kube import bounds
from kube.wire.encoding import Encoding


@pytest.fixture(params=list(Encoding), ids=lambda encoding: encoding.name.lower())
def encoding(request: pytest.FixtureRequest) -> Encoding:
    chosen: Encoding = request.param
    return chosen


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the bounds that the test reaches."""
    names: list[str] = []
    monkeypatch.setattr(bounds, "_listeners", [names.append])
    return names
