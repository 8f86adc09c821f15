"""The hub's metrics, in one registry per process. Names and labels are a public interface, and `scripts/docs` writes
their texts into docs/reference.md.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache

from prometheus_client.metrics import Counter, Gauge, disable_created_metrics
from prometheus_client.registry import CollectorRegistry

from addons.telemetry.labels import OTHER, BoundedLabels, resource_label, verb_label
from kube import bounds
from kube.requests.request_info import RequestInfo

# Creation times of counters would double the page's size for no benefit.
disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations
REGISTRY = CollectorRegistry()


def _parts(name: str, text: str) -> tuple[str, str, list[str]]:
    """Return name, text and labels, parsed from `name{labels}`."""
    bare, _, labels = name.rstrip("}").partition("{")
    return bare, text, labels.split(",") if labels else []


def counter(name: str, text: str) -> Counter:
    """Create a counter from `name{labels}`; Prometheus appends `_total` to its name."""
    return Counter(*_parts(name, text), registry=REGISTRY)


def gauge(name: str, text: str) -> Gauge:
    return Gauge(*_parts(name, text), registry=REGISTRY)


REQUESTS = counter("edgehub_requests{component,verb,resource,route,code}", "Requests answered.")
UPSTREAM_BYTES = counter(
    "edgehub_upstream_bytes{direction,server}",
    "Bytes of bodies to (up) and from (down) a server.",
)
LINK_BYTES = counter(
    "edgehub_link_bytes{direction}",
    "Bytes to (up) and from (down) the cloud, with TLS and heads, without TCP and IP.",
)
LINK_BUDGET = gauge("edgehub_link_budget_bytes", "The link's budget; 0: none.")
LINK_BUDGET_SPENT = gauge("edgehub_link_budget_spent_bytes", "Bytes in the budget's current period.")
SERVER_UP = gauge("edgehub_server_up{server}", "1 while a server is up.")
ROUND_TRIP = gauge("edgehub_server_round_trip_seconds{server}", "Smoothed round-trip time to a server.")
DRILL = gauge("edgehub_drill", "1 while an outage or a slow link is rehearsed on this node.")
FILTER_OBJECTS = counter(
    "edgehub_filter_objects{filter,resource,outcome}",
    "Objects filtered: kept, changed or dropped.",
)
FILTER_REASONS = counter("edgehub_filter_reasons{filter,reason}", "Filter decisions, by reason.")
FILTER_ERRORS = counter("edgehub_filter_errors{resource}", "Objects hidden because a filter failed.")
FILTER_MODULES_BROKEN = gauge(
    "edgehub_filter_modules_broken",
    "1 while changed filter files cannot be used.",
)
RULE_ERRORS = counter("edgehub_rule_errors", "Bad entries in the rules ConfigMap.")
BEYOND_QUOTA = counter(
    "edgehub_beyond_quota{quota}",
    "Lists and watches relayed or refused at their user's quota.",
)
RULE_EVENTS_DROPPED = counter("edgehub_rule_events_dropped", "Dropped Events about bad rules.")
FLOWS_REMOVED = counter("edgehub_flows_removed", "Flows that an interface dropped at its limit.")
HOOK_ERRORS = counter(
    "edgehub_hook_errors{addon,hook}",
    "Failed hooks (500 for the client) and failed background tasks.",
)
SOURCES = gauge("edgehub_sources", "Lists and watches of the cloud that the hub holds.")
WATCHERS = gauge("edgehub_watchers{resource}", "Open watches served from a view.")
SLOW_WATCHERS = counter(
    "edgehub_slow_watchers{resource}", "Watches ended because their client read too slowly."
)
LOCAL_HEALTH_UP = gauge(
    "edgehub_local_health_up",
    "1 while the local health service's last answer counts.",
)
LOCAL_HEALTH_UNHEALTHY = gauge(
    "edgehub_local_health_unhealthy",
    "Nodes that the local health service calls unhealthy.",
)
LOCAL_HEALTH_FAILURES = counter(
    "edgehub_local_health_failures", "Failed requests to the local health service."
)
UPSTREAM_CUT = counter(
    "edgehub_upstream_connections_cut{server}", "Connections to a server closed when it went down."
)
CONNECT_FAILURES = counter(
    "edgehub_connect_failures{fault}",
    "Connections that failed by the node's own fault: `node` (descriptors, ports), `resolver`.",
)
CONNECTIONS_REFUSED = counter(
    "edgehub_connections_refused{reason}",
    "Client connections closed at a bound; `late`: no request in time, `ahead`, `behind`: data around an answer.",
)
FAILED_HANDSHAKES = counter(
    "edgehub_failed_handshakes{said,called}",
    "TLS handshakes that clients broke off, by their alert (`closed`: none) and the called name.",
)
ALERT_LABELS = (
    *("unknown ca", "bad certificate", "certificate unknown", "certificate expired"),
    *("unsupported certificate", "closed", OTHER),
)
NAME_LABELS = ("address", "kubernetes", OTHER)
for _alert in ALERT_LABELS:
    for _name in NAME_LABELS:
        FAILED_HANDSHAKES.labels(_alert, _name)
LISTENERS_CLOSED = gauge("edgehub_listeners_closed", "Listeners that should be open and are not.")
LISTENERS_LOST = counter("edgehub_listeners_lost", "Listeners closed by something else than the hub.")
UNREAD_STREAMS = counter(
    "edgehub_unread_streams_reset",
    "HTTP/2 streams reset because their client did not read.",
)
REQUESTS_REFUSED = counter(
    "edgehub_requests_refused{code}",
    "Malformed or too large requests, by status code.",
)
BOUNDS_REACHED = counter(
    "edgehub_bounds_reached{bound}",
    "Times that a bound without a metric of its own was reached.",
)
bounds.listen(lambda bound: BOUNDS_REACHED.labels(bound).inc())
REQUESTS_RESENT = counter(
    "edgehub_requests_resent",
    "Requests sent again after a server closed unprocessed ones.",
)
ADMIN_REFUSED = counter(
    "edgehub_admin_refused{bound}",
    "Admin requests refused at a bound; `turn`: of long reports.",
)
POD_UPDATES = counter(
    "edgehub_pod_updates{action,code}",
    "Requests to upgrade a pod, or pull its images.",
)
for _action in ("upgrade", "imagepull"):
    for _code in ("200", "400", "403", "500", "503"):
        POD_UPDATES.labels(_action, _code)
CACHE_WRITE_ERRORS = counter(
    "edgehub_cache_write_errors", "Failed disk operations; the hub continues without."
)
RESPONSES_EVICTED = counter(
    "edgehub_responses_evicted{share}",
    "Cached answers evicted, of `node` or `other` callers.",
)
RESPONSES_UNKEPT = counter(
    "edgehub_responses_unkept", "Answers not cached because too many wait for the disk."
)
GARBAGE = counter(
    "edgehub_garbage{reason}",
    "Copies deleted from disk: `unused`, `unmounted`, `no room`.",
)
SOURCE_ERRORS = counter(
    "edgehub_source_errors{resource,reason}",
    "Failed lists and watches of the cloud; the copy stays.",
)
JOURNAL_ENTRIES = gauge("edgehub_journal_entries", "Journaled writes that wait for the cloud.")
JOURNAL_REPLAYED = counter(
    "edgehub_journal_replayed{kind}", "Journaled writes accepted by the cloud: `status`, `event`."
)
JOURNAL_DROPPED = counter(
    "edgehub_journal_dropped{kind,reason}",
    "Journaled writes lost: `gone` (the object), `refused`, `no room`, `unreadable`.",
)
LEASE_RENEWALS = counter(
    "edgehub_lease_renewals{outcome}", "Renewals of this node's Lease in the cloud: `ok`, `failed`."
)
CERTIFICATE_EXPIRY = gauge(
    "edgehub_certificate_expiry_seconds{use}",
    "Seconds until a certificate expires: `client` (for the cloud), `serving`, `peer`; NaN: none.",
)
POOL_ROLE = gauge(
    "edgehub_pool_role{role}", "1 for this hub's role in its pool: `none`, `leader` or `follower`."
)
PEER_WATCHERS = gauge("edgehub_peer_watchers{resource}", "Open watches of other hubs at the peer port.")
LINK = gauge(
    "edgehub_link{via}",
    "1 for the link in use: `own`, `uplink NAME`, the lending node, or `none`.",
)
LENT_TUNNELS = gauge("edgehub_lent_tunnels{node}", "Tunnels to the cloud that other nodes borrow.")
LENT_BYTES = counter(
    "edgehub_lent_bytes{direction,node}",
    "Encrypted bytes of other nodes through this one.",
)
PEER_BYTES = counter(
    "edgehub_peer_bytes{direction,node}",
    "Bytes of bodies `sent` to and `received` from other nodes' hubs.",
)
PEER_REFUSED = counter(
    "edgehub_peer_refused{reason}",
    "Requests refused at the peer port.",
)
REPORTS_REFUSED = counter(
    "edgehub_kubelet_words_refused{reason}",
    "Refused pod reports of other hubs.",
)
SOURCE_SERVER = gauge(
    "edgehub_source_server{resource,server}",
    "Sources of a shared resource, by leader's node or `cloud`.",
)

PEER_LIMIT = 200
"""Maximum nodes as a metric's label: twice the largest supported pool."""
COMPONENT_LIMIT = 100
"""Maximum component labels; a hostile client may send any number of names."""

MAX_KINDS = 100
"""Maximum combinations of verb, resource, route and code for one component: each takes 1.5 KB, and known names alone
allow a million.
"""

component_label = BoundedLabels(COMPONENT_LIMIT).label
peer_label = BoundedLabels(PEER_LIMIT).label
_kinds: defaultdict[str, BoundedLabels] = defaultdict(lambda: BoundedLabels(MAX_KINDS))
"""The combinations recorded for each component."""


def count_request(component: str, info: RequestInfo, route: str, code: int) -> None:
    """Count a request. `component` must be a label already. Beyond MAX_KINDS the verb, resource and code become
    `other`.
    """
    resource = info.type.resource if info.type is not None else ""
    _requests(component, verb_label(info.verb), resource_label(resource), route, code).inc()


@lru_cache(maxsize=1024)
def _requests(component: str, verb: str, resource: str, route: str, code: int) -> Counter:
    kind = verb, resource, route, str(code)
    if _kinds[component].label(" ".join(kind)) == OTHER:
        kind = OTHER, OTHER, route, OTHER
    return REQUESTS.labels(component, *kind)


def count_failed_handshake(said: str, called: str) -> tuple[str, str]:
    """Count a failed handshake, and return its labels. `called` must be a label already, never text from a client."""
    labels = said if said in ALERT_LABELS else OTHER, called
    FAILED_HANDSHAKES.labels(*labels).inc()
    return labels


def watch_expiry(use: str, expiry: Callable[[], datetime | None]) -> None:
    """Export when the certificate for a use expires. `expiry` is called at each read of the metrics."""

    def seconds_left() -> float:
        ends = expiry()
        return (ends - datetime.now(UTC)).total_seconds() if ends is not None else math.nan

    CERTIFICATE_EXPIRY.labels(use).set_function(seconds_left)


def total(metric: Counter | Gauge) -> int:
    """Return the sum of a metric over all labels, as an integer."""
    return int(sum(sample.value for family in metric.collect() for sample in family.samples))


def exposition() -> bytes:
    """Return all metrics in Prometheus' text format."""
    # Imported late: this loads HTTP servers and clients, which would delay the start.
    from prometheus_client.exposition import generate_latest  # noqa: PLC0415 - as above

    return generate_latest(REGISTRY)
