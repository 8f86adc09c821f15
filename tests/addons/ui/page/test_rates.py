"""Bytes a second, with a clock that the test moves."""

from __future__ import annotations

import pytest

from addons.telemetry import metrics
from addons.telemetry.component_traffic import ComponentTraffic
from addons.ui.page.rates import SPAN, Rates


def test_a_rate_is_of_the_time_since_the_last_look() -> None:
    times = [0.0]
    traffic = ComponentTraffic()
    rates = Rates(traffic, lambda: times[0])
    assert rates.now() == (None, None, None)
    traffic.began("kubelet", "", 200, is_watch=False).totals.sent += 1000
    metrics.UPSTREAM_BYTES.labels("down", "https://a").inc(500)
    times[0] = SPAN / 2
    assert rates.now() == (None, None, None), "too soon"
    times[0] = 10.0
    assert rates.now() == pytest.approx((100.0, 50.0, 0.0))
    times[0] = 10.5
    assert rates.now() == pytest.approx((100.0, 50.0, 0.0)), "as a moment ago"
    times[0] = 20.0
    assert rates.now() == (0.0, 0.0, 0.0)
