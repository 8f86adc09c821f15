"""A bound that is reached notifies its listeners."""

from __future__ import annotations

import pytest

from kube import bounds
from kube.bounds import Recent


def test_all_who_listen_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "_listeners", [])
    bounds.reached("nobody listens")
    one: list[str] = []
    other: list[str] = []
    bounds.listen(one.append)
    bounds.listen(other.append)
    bounds.reached("leaders")
    assert one == other == ["leaders"]


def test_the_least_recently_used_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "_listeners", [])
    told: list[str] = []
    bounds.listen(told.append)
    kept: Recent[str, int] = Recent(2, "letters")
    kept["a"], kept["b"] = 1, 2
    assert kept.use("a") == 1
    kept["c"] = 3
    assert list(kept) == ["a", "c"]
    assert kept.use("b") is None
    kept["a"] = 4
    kept["d"] = 5
    assert list(kept) == ["a", "d"]
    assert told == ["letters", "letters"]
