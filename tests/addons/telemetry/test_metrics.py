"""Names of metrics are an interface; labels that clients choose are bounded."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from addons.telemetry import metrics


@pytest.mark.parametrize(
    "line",
    [
        'edgehub_requests_total{code="200",component="test-metrics",resource="pods",route="view",verb="list"} 1.0',
        'edgehub_upstream_bytes_total{direction="up",server="test-metrics"} 1.0',
        'edgehub_server_up{server="test-metrics"} 1.0',
        'edgehub_filter_objects_total{filter="test-metrics",outcome="kept",resource="pods"} 1.0',
        'edgehub_hook_errors_total{addon="test-metrics",hook="request"} 1.0',
        'edgehub_watchers{resource="test-metrics"} 1.0',
    ],
)
def test_names_and_labels(line: str) -> None:
    samples = (
        metrics.REQUESTS.labels("test-metrics", "list", "pods", "view", 200),
        metrics.UPSTREAM_BYTES.labels("up", "test-metrics"),
        metrics.SERVER_UP.labels("test-metrics"),
        metrics.FILTER_OBJECTS.labels("test-metrics", "pods", "kept"),
        metrics.HOOK_ERRORS.labels("test-metrics", "request"),
        metrics.WATCHERS.labels("test-metrics"),
    )
    try:
        for sample in samples:
            sample.inc()
        assert f"{line}\n" in metrics.exposition().decode()
    finally:
        metrics.REQUESTS.remove("test-metrics", "list", "pods", "view", 200)
        metrics.UPSTREAM_BYTES.remove("up", "test-metrics")
        metrics.SERVER_UP.remove("test-metrics")
        metrics.FILTER_OBJECTS.remove("test-metrics", "pods", "kept")
        metrics.HOOK_ERRORS.remove("test-metrics", "request")
        metrics.WATCHERS.remove("test-metrics")


def test_counters_without_labels_are_there_from_the_start() -> None:
    page = metrics.exposition().decode()
    assert "edgehub_rule_errors_total " in page
    assert "edgehub_sources " in page
    assert "_created" not in page


@pytest.mark.parametrize(
    ("life", "shown"),
    [
        (timedelta(days=1), lambda seconds: 86_000 < seconds < 86_401),
        (timedelta(days=-1), lambda seconds: seconds < -86_000),
        (None, math.isnan),
    ],
)
def test_the_life_that_a_certificate_has_left(life: timedelta | None, shown: Callable[[float], bool]) -> None:
    ends = datetime.now(UTC) + life if life is not None else None
    metrics.watch_expiry("test-metrics", lambda: ends)
    try:
        (line,) = [
            line for line in metrics.exposition().decode().splitlines() if 'use="test-metrics"' in line
        ]
        assert shown(float(line.split()[-1]))
    finally:
        metrics.CERTIFICATE_EXPIRY.remove("test-metrics")
