"""The manager's metrics, one registry for the process."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from kube import bounds

# The creation times of counters would double the page and nobody reads them.
disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations
REGISTRY = CollectorRegistry()

LEADER = Gauge("edgehub_manager_leader", "1 while this process holds the Lease.", registry=REGISTRY)
QUEUE_DEPTH = Gauge(
    "edgehub_manager_queue_depth", "Keys that wait to be reconciled.", ["controller"], registry=REGISTRY
)
BUSY = Gauge(
    "edgehub_manager_busy",
    "1 while keys wait, are being reconciled or will be retried, else 0.",
    ["controller"],
    registry=REGISTRY,
)
QUEUE_ADDS = Counter(
    "edgehub_manager_queue_adds", "Keys that were put into the queue.", ["controller"], registry=REGISTRY
)
QUEUE_SECONDS = Histogram(
    "edgehub_manager_queue_seconds",
    "Time that a key waited for a worker.",
    ["controller"],
    buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0),
    registry=REGISTRY,
)
WORKERS = Gauge(
    "edgehub_manager_workers", "Keys that can be reconciled at a time.", ["controller"], registry=REGISTRY
)
ACTIVE_WORKERS = Gauge(
    "edgehub_manager_active_workers", "Keys that are being reconciled.", ["controller"], registry=REGISTRY
)
UNFINISHED_SECONDS = Gauge(
    "edgehub_manager_unfinished_work_seconds",
    "Seconds for which all reconciles that are under way have taken.",
    ["controller"],
    registry=REGISTRY,
)
LONGEST_SECONDS = Gauge(
    "edgehub_manager_longest_work_seconds",
    "Seconds for which the longest reconcile that is under way has taken.",
    ["controller"],
    registry=REGISTRY,
)
WORK_SECONDS = Histogram(
    "edgehub_manager_work_seconds",
    "Duration of a reconcile.",
    ["controller"],
    buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0),
    registry=REGISTRY,
)
WORK = Counter(
    "edgehub_manager_work",
    "Reconciles, by result: done, conflict (another client wrote first), refused (by the API server) or failed.",
    ["controller", "result"],
    registry=REGISTRY,
)
RETRIES = Counter(
    "edgehub_manager_retries",
    "Keys that were queued again after a reconcile without success.",
    ["controller"],
    registry=REGISTRY,
)
WRITES = Counter(
    "edgehub_manager_writes",
    "Writes to the API server, by the status code of its response.",
    ["resource", "verb", "code"],
    registry=REGISTRY,
)
WEBHOOK_MISSED = Counter(
    "edgehub_manager_webhook_missed",
    "Workloads that the controller had to inject because the webhook had not.",
    registry=REGISTRY,
)
UNRECORDED = Gauge(
    "edgehub_manager_unrecorded",
    "1 while what hubs were told of is too large for the record that the next manager reads.",
    ["controller"],
    registry=REGISTRY,
)
BOUNDS_REACHED = Counter(
    "edgehub_bounds_reached",
    "How often a bound was reached, and something was refused or left out, by the bound.",
    ["bound"],
    registry=REGISTRY,
)
OBJECTS = Gauge(
    "edgehub_manager_objects", "Objects in the informers' memory.", ["resource"], registry=REGISTRY
)

bounds.listen(lambda bound: BOUNDS_REACHED.labels(bound).inc())

RESULTS = ("done", "conflict", "refused", "failed")
"""Values of the label `result`."""


def exposition() -> bytes:
    """All metrics in Prometheus' text format."""
    return generate_latest(REGISTRY)
