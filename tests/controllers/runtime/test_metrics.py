"""The page of metrics."""

from __future__ import annotations

from controllers.runtime import metrics


def test_the_page_names_what_the_manager_counts() -> None:
    page = metrics.exposition().decode()
    for name in (
        "leader",
        "queue_depth",
        "busy",
        "work_seconds",
        "work_total",
        "retries_total",
        "writes_total",
        "objects",
    ):
        assert f"edgehub_manager_{name}" in page


def test_the_page_is_without_times_of_birth() -> None:
    metrics.RETRIES.labels("test").inc()
    assert "_created" not in metrics.exposition().decode()
