"""The choice among leaders and cloud."""

from __future__ import annotations

import pytest

from addons.pool.leaders import CLOUD, Choice, LeaderState, choose
from addons.pool.pool_config import LeaderHub
from addons.upstream.health import ServerHealth
from addons.upstream.servers import Server

NOW = 100.0


def leader(text: str) -> LeaderState:
    """`a` is usable, `a!` has failed, `a~` is used again later, `a9` lost the cloud 9 s ago."""
    made = LeaderState(LeaderHub(text[0], ""), ServerHealth(Server("https", "10.0.0.1", 10269, text[0])))
    made.failure = "refused" if "!" in text else ""
    made.usable_from = NOW + 1 if "~" in text else 0.0
    made.age = float(text[1:] or 0) if text[1:].isdecimal() else 0.0
    return made


@pytest.mark.parametrize(
    ("order", "cloud_is_up", "cloud_from", "expected"),
    [
        (["a", "b"], True, 0.0, "a"),
        (["a", "b"], False, 0.0, "a"),
        (["a!", "b"], True, 0.0, "b"),
        (["a~", "b"], True, 0.0, "b"),
        (["a9", "b"], True, 0.0, "b"),
        (["a9", "b!"], True, 0.0, CLOUD),
        (["a9", "b!"], True, NOW + 5, "a"),
        (["a9", "b3"], False, 0.0, "b"),
        (["a!", "b~"], True, NOW + 5, Choice(None, 5.0)),
        (["a!", "b~"], True, NOW, CLOUD),
        (["a!", "b~"], False, NOW + 5, CLOUD),
        ([], True, 0.0, CLOUD),
        ([], True, NOW + 2, Choice(None, 2.0)),
    ],
)
def test_choice(order: list[str], cloud_is_up: bool, cloud_from: float, expected: str | Choice) -> None:
    states = [leader(each) for each in order]
    found = choose(states, NOW, cloud_is_up=cloud_is_up, cloud_from=cloud_from)
    if isinstance(expected, Choice):
        assert found == expected
    else:
        assert found.leader is not None
        assert (found.leader.leader.node, found.wait) == (expected, 0.0)
