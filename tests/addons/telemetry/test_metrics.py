"""Names of metrics are an interface; labels that clients choose are bounded."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from addons.telemetry import metrics
from kube.requests.request_info import parse_request


def test_counters_without_labels_are_exported_from_the_start() -> None:
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
def test_the_remaining_validity_of_a_certificate_is_exported(
    life: timedelta | None, shown: Callable[[float], bool]
) -> None:
    ends = datetime.now(UTC) + life if life is not None else None
    metrics.watch_expiry("test-metrics", lambda: ends)
    try:
        (line,) = [
            line for line in metrics.exposition().decode().splitlines() if 'use="test-metrics"' in line
        ]
        assert shown(float(line.split()[-1]))
    finally:
        metrics.CERTIFICATE_EXPIRY.remove("test-metrics")


def test_label_sets_of_a_components_requests_are_bounded() -> None:
    """Any client of the TLS port could once create 1.5 KB for each verb, resource and code, under a hundred names."""

    def series() -> set[str]:
        lines = metrics.exposition().decode().splitlines()
        return {line.rpartition(" ")[0] for line in lines if 'component="inventor"' in line}

    for code in range(100, 900):
        metrics.count_request("inventor", parse_request("GET", "/api/v1/pods"), "relay", code)
    assert len(series()) == metrics.MAX_KINDS + 1
    metrics.count_request("inventor", parse_request("GET", "/api/v1/pods"), "relay", 100)
    assert len(series()) == metrics.MAX_KINDS + 1
    (rest,) = [line for line in series() if 'code="other"' in line]
    assert 'resource="other",route="relay",verb="other"' in rest
