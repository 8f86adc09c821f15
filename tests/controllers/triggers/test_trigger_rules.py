"""The rules of triggers as tables."""

from __future__ import annotations

import pytest

from controllers.cluster.services import Service
from controllers.triggers.trigger_rules import topology_changed


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        (Service("n", "s"), Service("n", "s", topology="x"), True),
        (Service("n", "s", topology="x"), Service("n", "s", topology="y"), True),
        (Service("n", "s", topology="x"), Service("n", "s"), True),
        (Service("n", "s", topology=""), Service("n", "s"), True),
        (Service("n", "s", topology="x", version="1"), Service("n", "s", topology="x", version="2"), False),
        (None, Service("n", "s", topology="x"), False),
        (Service("n", "s", topology="x"), None, False),
    ],
)
def test_a_topology_changed(old: Service | None, new: Service | None, changed: bool) -> None:
    assert topology_changed(old, new) is changed
