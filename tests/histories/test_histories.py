"""After any history each client has the cloud's state, through the rules in force."""

from __future__ import annotations

import random

import pytest

from tests.histories.pinned import PINNED
from tests.histories.runner import LENGTH, parsed, play, written
from tests.histories.steps import made_up


@pytest.mark.parametrize("name", PINNED)
def test_pinned_histories_end_without_a_finding(name: str) -> None:
    assert not play(parsed(PINNED[name]))


# Random histories in each run of the suite: about 15 s of CPU. `scripts/fuzz --histories` plays more.
@pytest.mark.parametrize("seed", range(100))
def test_each_client_ends_with_the_state_of_the_cloud(seed: int) -> None:
    history = made_up(random.Random(seed), LENGTH)
    found = play(history, seed)
    assert not found, written(history)
