"""Times as people read them."""

from __future__ import annotations

import pytest

from addons.ui.durations import duration


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0s"), (59.4, "59s"), (60, "1m0s"), (200, "3m20s"), (7500, "2h5m"), (90_000, "25h0m")],
)
def test_durations(seconds: float, said: str) -> None:
    assert duration(seconds) == said
