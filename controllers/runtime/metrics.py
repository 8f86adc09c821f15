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


def _parts(name: str, text: str) -> tuple[str, str, list[str]]:
    """Name, text and labels, of which the name tells."""
    bare, _, labels = name.rstrip("}").partition("{")
    return bare, text, labels.split(",") if labels else []


def counter(name: str, text: str) -> Counter:
    """One with `{labels}` behind its name; `_total` follows the name where Prometheus shows it."""
    return Counter(*_parts(name, text), registry=REGISTRY)


def gauge(name: str, text: str) -> Gauge:
    return Gauge(*_parts(name, text), registry=REGISTRY)


def histogram(name: str, text: str) -> Histogram:
    """Make a histogram of seconds."""
    return Histogram(
        *_parts(name, text), buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0), registry=REGISTRY
    )


LEADER = gauge("edgehub_manager_leader", "1 while this process holds the Lease.")
QUEUE_DEPTH = gauge("edgehub_manager_queue_depth{controller}", "Keys that wait to be reconciled.")
BUSY = gauge(
    "edgehub_manager_busy{controller}", "1 while keys wait, are being reconciled or will be retried, else 0."
)
QUEUE_ADDS = counter("edgehub_manager_queue_adds{controller}", "Keys that were put into the queue.")
QUEUE_SECONDS = histogram("edgehub_manager_queue_seconds{controller}", "Time that a key waited for a worker.")
WORKERS = gauge("edgehub_manager_workers{controller}", "Keys that can be reconciled at a time.")
ACTIVE_WORKERS = gauge("edgehub_manager_active_workers{controller}", "Keys that are being reconciled.")
UNFINISHED_SECONDS = gauge(
    "edgehub_manager_unfinished_work_seconds{controller}",
    "Seconds for which all reconciles that are under way have taken.",
)
LONGEST_SECONDS = gauge(
    "edgehub_manager_longest_work_seconds{controller}",
    "Seconds for which the longest reconcile that is under way has taken.",
)
WORK_SECONDS = histogram("edgehub_manager_work_seconds{controller}", "Duration of a reconcile.")
WORK = counter(
    "edgehub_manager_work{controller,result}",
    "Reconciles, by result: done, conflict (another client wrote first), refused (by the API server) or failed.",
)
RETRIES = counter(
    "edgehub_manager_retries{controller}", "Keys that were queued again after a reconcile without success."
)
WRITES = counter(
    "edgehub_manager_writes{resource,verb,code}",
    "Writes to the API server, by the status code of its response.",
)
WEBHOOK_MISSED = counter(
    "edgehub_manager_webhook_missed",
    "Workloads that the controller had to inject because the webhook had not.",
)
PODS_OUTDATED = gauge(
    "edgehub_manager_pods_outdated",
    "Pods of DaemonSets that are updated by annotation, and are not of the newest template.",
)
PODS_REPLACED = counter(
    "edgehub_manager_pods_replaced", "Outdated pods that AdvancedRollingUpdate has deleted."
)
IMAGE_PULLS = counter(
    "edgehub_manager_image_pulls{result}",
    "Pulls of images before an update, by result: pulled or failed.",
)
for _result in ("pulled", "failed"):
    IMAGE_PULLS.labels(_result)
NODE_STATES = ("joined", "under way", "waiting", "failed")
"""Values of the label `state`."""
EDGE_NODES = gauge(
    "edgehub_manager_edge_nodes{state}",
    "Nodes that get or lose a hub by their label, by state: joined, under way, waiting (for their turn or their link) "
    "or failed.",
)
UNRECORDED = gauge(
    "edgehub_manager_unrecorded{controller}",
    "1 while what hubs were told of is too large for the record that the next manager reads.",
)
BOUNDS_REACHED = counter(
    "edgehub_bounds_reached{bound}",
    "How often a bound was reached, and something was refused or left out, by the bound.",
)
OBJECTS = gauge("edgehub_manager_objects{resource}", "Objects in the informers' memory.")

bounds.listen(lambda bound: BOUNDS_REACHED.labels(bound).inc())

RESULTS = ("done", "conflict", "refused", "failed")
"""Values of the label `result`."""


def exposition() -> bytes:
    """All metrics in Prometheus' text format."""
    return generate_latest(REGISTRY)
