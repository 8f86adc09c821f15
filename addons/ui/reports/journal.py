"""The report `journal`: the writes that wait for the cloud, and those that never reached it."""

from __future__ import annotations

from typing import Any

from prometheus_client.metrics import Counter

from addons.telemetry import metrics
from addons.ui.running_hub import RunningHub


def journal(hub: RunningHub) -> dict[str, Any]:
    """Statuses by path, events by number alone: their contents stay private. Counts are since the hub started."""
    described = hub.offline.describe()["journal"] if hub.offline is not None else {}
    return {
        "waiting": hub.offline.waiting() if hub.offline is not None else 0,
        "statuses": described.get("statuses", []),
        "events": described.get("events", 0),
        "unwritten": described.get("unwritten", 0),
        "replayed": _counts(metrics.JOURNAL_REPLAYED),
        "dropped": _counts(metrics.JOURNAL_DROPPED),
    }


def _counts(counter: Counter) -> list[dict[str, Any]]:
    return [
        {**sample.labels, "count": int(sample.value)}
        for metric in counter.collect()
        for sample in metric.samples
    ]
