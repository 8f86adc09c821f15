"""The measured CPU time of a call excludes other work."""

from __future__ import annotations

import gc

import pytest

from tests.support.cpu_time import own_seconds


def test_work_counts_and_a_wait_does_not() -> None:
    assert own_seconds(lambda: sum(range(1_000_000))) > 10 * own_seconds(lambda: None)


def test_garbage_is_collected_at_another_time() -> None:
    seen: list[bool] = []
    own_seconds(lambda: seen.append(gc.isenabled()))
    assert seen == [False]
    assert gc.isenabled()


def test_an_error_is_the_calls() -> None:
    with pytest.raises(ZeroDivisionError):
        own_seconds(lambda: 1 / 0)
    assert gc.isenabled()
