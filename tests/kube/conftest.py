"""Tests of what both encodings share run in each."""

from __future__ import annotations

import pytest

from kube.wire.encoding import Encoding


@pytest.fixture(params=list(Encoding), ids=lambda encoding: encoding.name.lower())
def encoding(request: pytest.FixtureRequest) -> Encoding:
    chosen: Encoding = request.param
    return chosen
