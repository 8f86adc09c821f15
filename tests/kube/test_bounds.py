"""A bound that is reached notifies its listeners."""

from __future__ import annotations

import pytest

from kube import bounds


def test_all_who_listen_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "_listeners", [])
    bounds.reached("nobody listens")
    one: list[str] = []
    other: list[str] = []
    bounds.listen(one.append)
    bounds.listen(other.append)
    bounds.reached("leaders")
    assert one == other == ["leaders"]
