"""When a better way that is back is used again."""

from __future__ import annotations

import pytest

from addons.link.uplinks.better_way import HOLD, LASTING, LONGEST_HOLD, BetterWay


@pytest.mark.parametrize(
    ("lasted", "holds"),
    [
        ([LASTING], [HOLD, HOLD]),
        ([LASTING - 1, 1, 0], [HOLD, 2 * HOLD, 4 * HOLD, 8 * HOLD]),
        ([0] * 6, [HOLD, 2 * HOLD, 4 * HOLD, 8 * HOLD, LONGEST_HOLD, LONGEST_HOLD, LONGEST_HOLD]),
        ([0, 0, LASTING, 0], [HOLD, 2 * HOLD, 4 * HOLD, HOLD, 2 * HOLD]),
    ],
)
def test_a_way_that_does_not_last_is_trusted_later_each_time(lasted: list[float], holds: list[float]) -> None:
    way, now, found = BetterWay(), 0.0, []
    for each in [*lasted, 0.0]:
        way.lost(now)
        left = way.seconds_left(now, is_up=True)
        assert left is not None
        found.append(left)
        now += left
        assert way.seconds_left(now, is_up=True) == 0.0
        way.used(now)
        now += each
    assert found == holds
