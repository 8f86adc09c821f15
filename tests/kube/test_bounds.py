"""A bound that is reached notifies its listeners."""

from __future__ import annotations

import pytest

from kube import bounds
from kube.bounds import Recent


def test_all_listeners_of_bounds_are_notified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "_listeners", [])
    bounds.reached("nobody listens")
    one: list[str] = []
    other: list[str] = []
    bounds.listen(one.append)
    bounds.listen(other.append)
    bounds.reached("leaders")
    assert one == other == ["leaders"]


def test_the_least_recently_used_entry_is_evicted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "_listeners", [])
    reached: list[str] = []
    bounds.listen(reached.append)
    recent: Recent[str, int] = Recent(2, "letters")
    recent["a"], recent["b"] = 1, 2
    assert recent.use("a") == 1
    recent["c"] = 3
    assert list(recent) == ["a", "c"]
    assert recent.use("b") is None
    recent["a"] = 4
    recent["d"] = 5
    assert list(recent) == ["a", "d"]
    assert reached == ["letters", "letters"]
