"""The measured CPU time of a call excludes other work."""

from __future__ import annotations

import gc

import pytest

from tests.support.cpu_time import own_seconds


def test_computing_is_measured_and_waiting_is_not() -> None:
    assert own_seconds(lambda: sum(range(1_000_000))) > 10 * own_seconds(lambda: None)


def test_garbage_collection_is_not_measured() -> None:
    seen: list[bool] = []
    own_seconds(lambda: seen.append(gc.isenabled()))
    assert seen == [False]
    assert gc.isenabled()


def test_an_error_of_the_call_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        own_seconds(lambda: 1 / 0)
    assert gc.isenabled()
