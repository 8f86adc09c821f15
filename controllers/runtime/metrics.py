"""The manager's metrics, in one registry for the process."""

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

# The creation times of counters would double the page and have no reader.
disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations
REGISTRY = CollectorRegistry()


def _parts(name: str, text: str) -> tuple[str, str, list[str]]:
    """Split a declaration into name, help text and labels."""
    bare, _, labels = name.rstrip("}").partition("{")
    return bare, text, labels.split(",") if labels else []


def counter(name: str, text: str) -> Counter:
    """Declare a counter by its name and `{labels}`; Prometheus shows the name with `_total`."""
    return Counter(*_parts(name, text), registry=REGISTRY)


def gauge(name: str, text: str) -> Gauge:
    return Gauge(*_parts(name, text), registry=REGISTRY)


def histogram(name: str, text: str) -> Histogram:
    """Make a histogram of seconds."""
    return Histogram(
        *_parts(name, text), buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0), registry=REGISTRY
    )


LEADER = gauge("edgehub_manager_leader", "1 while this process holds the Lease.")
QUEUE_DEPTH = gauge("edgehub_manager_queue_depth{controller}", "Keys waiting to be reconciled.")
BUSY = gauge("edgehub_manager_busy{controller}", "1 while keys wait, are reconciled or will be retried.")
QUEUE_ADDS = counter("edgehub_manager_queue_adds{controller}", "Keys added to the queue.")
QUEUE_SECONDS = histogram("edgehub_manager_queue_seconds{controller}", "Time that a key waited in the queue.")
WORKERS = gauge("edgehub_manager_workers{controller}", "Workers: most keys reconciled at a time.")
ACTIVE_WORKERS = gauge("edgehub_manager_active_workers{controller}", "Keys being reconciled.")
UNFINISHED_SECONDS = gauge(
    "edgehub_manager_unfinished_work_seconds{controller}",
    "Seconds of all running reconciles so far.",
)
LONGEST_SECONDS = gauge(
    "edgehub_manager_longest_work_seconds{controller}",
    "Seconds of the longest running reconcile so far.",
)
WORK_SECONDS = histogram("edgehub_manager_work_seconds{controller}", "Duration of a reconcile.")
WORK = counter(
    "edgehub_manager_work{controller,result}",
    "Reconciles: `done`, `conflict`, `refused` (by the API server), `failed`.",
)
RETRIES = counter("edgehub_manager_retries{controller}", "Keys queued again after a failure.")
WRITES = counter(
    "edgehub_manager_writes{resource,verb,code}",
    "Writes to the API server, by status code.",
)
WEBHOOK_MISSED = counter(
    "edgehub_manager_webhook_missed",
    "Workloads that the webhook missed.",
)
PODS_OUTDATED = gauge(
    "edgehub_manager_pods_outdated",
    "Outdated pods of DaemonSets updated by annotation.",
)
PODS_REPLACED = counter("edgehub_manager_pods_replaced", "Outdated pods deleted by AdvancedRollingUpdate.")
IMAGE_PULLS = counter(
    "edgehub_manager_image_pulls{result}",
    "Image pulls before an update.",
)
for _result in ("pulled", "failed"):
    IMAGE_PULLS.labels(_result)
NODE_STATES = ("joined", "under way", "waiting", "failed")
"""Values of the label `state`."""
EDGE_NODES = gauge(
    "edgehub_manager_edge_nodes{state}",
    "Nodes that get or lose a hub by label, by state.",
)
UNRECORDED = gauge(
    "edgehub_manager_unrecorded{controller}",
    "1 while the record of triggers is too large to be written.",
)
BOUNDS_REACHED = counter(
    "edgehub_bounds_reached{bound}",
    "Times that a bound without a metric of its own was reached.",
)
OBJECTS = gauge("edgehub_manager_objects{resource}", "Objects in the informers' caches.")

bounds.listen(lambda bound: BOUNDS_REACHED.labels(bound).inc())

RESULTS = ("done", "conflict", "refused", "failed")
"""Values of the label `result`."""


def exposition() -> bytes:
    """Format all metrics in Prometheus' text format."""
    return generate_latest(REGISTRY)
