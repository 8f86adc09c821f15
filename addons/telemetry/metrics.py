"""The hub's metrics, one registry for the process. Names and labels are an interface, and
`scripts/docs` writes the texts into docs/operations.md."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime

from prometheus_client.metrics import Counter, Gauge, disable_created_metrics
from prometheus_client.registry import CollectorRegistry

from addons.telemetry.labels import BoundedLabels
from kube import bounds

# A counter's time of birth would double the page for nothing.
disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations
REGISTRY = CollectorRegistry()

REQUESTS = Counter(
    "edgehub_requests",
    "Requests answered.",
    ["component", "verb", "resource", "route", "code"],
    registry=REGISTRY,
)
UPSTREAM_BYTES = Counter(
    "edgehub_upstream_bytes",
    "Bytes of bodies sent to (up) and received from (down) a server, as on the wire.",
    ["direction", "server"],
    registry=REGISTRY,
)
SERVER_UP = Gauge("edgehub_server_up", "1 while a server is up.", ["server"], registry=REGISTRY)
DRILL = Gauge(
    "edgehub_drill", "1 while a person rehearses an outage, or a slow link, on this node.", registry=REGISTRY
)
FILTER_OBJECTS = Counter(
    "edgehub_filter_objects",
    "Objects a filter has judged: kept, changed or dropped.",
    ["filter", "resource", "outcome"],
    registry=REGISTRY,
)
FILTER_REASONS = Counter(
    "edgehub_filter_reasons",
    "Why filters judged so (`same-pool`, `no-service`, …).",
    ["filter", "reason"],
    registry=REGISTRY,
)
FILTER_ERRORS = Counter(
    "edgehub_filter_errors",
    "Objects that could not be judged, and so are hidden.",
    ["resource"],
    registry=REGISTRY,
)
FILTER_MODULES_BROKEN = Gauge(
    "edgehub_filter_modules_broken",
    "1 while files of filters have changed and cannot be used; the former filters stay in force.",
    registry=REGISTRY,
)
RULE_ERRORS = Counter("edgehub_rule_errors", "Bad entries found in the rules ConfigMap.", registry=REGISTRY)
BEYOND_QUOTA = Counter(
    "edgehub_beyond_quota",
    "Lists and watches that the hub relayed or refused because their user's quota was reached.",
    ["quota"],
    registry=REGISTRY,
)
RULE_EVENTS_DROPPED = Counter(
    "edgehub_rule_events_dropped",
    "Events about bad rules that were left out because too many waited.",
    registry=REGISTRY,
)
FLOWS_REMOVED = Counter(
    "edgehub_flows_removed",
    "Flows that an interface dropped, the oldest first, because it kept too many.",
    registry=REGISTRY,
)
HOOK_ERRORS = Counter(
    "edgehub_hook_errors",
    "Hooks that failed; each cost its client a 500.",
    ["addon", "hook"],
    registry=REGISTRY,
)
SOURCES = Gauge("edgehub_sources", "Lists and watches of the cloud that the hub keeps.", registry=REGISTRY)
WATCHERS = Gauge("edgehub_watchers", "Open watches served from a view.", ["resource"], registry=REGISTRY)
SLOW_WATCHERS = Counter(
    "edgehub_slow_watchers",
    "Watches cut because their client read too slowly.",
    ["resource"],
    registry=REGISTRY,
)
LOCAL_HEALTH_UP = Gauge(
    "edgehub_local_health_up",
    "1 while the last word of the local health source counts; 0 also where there is no source.",
    registry=REGISTRY,
)
LOCAL_HEALTH_UNHEALTHY = Gauge(
    "edgehub_local_health_unhealthy",
    "Nodes (names or addresses) that the local health source calls unhealthy.",
    registry=REGISTRY,
)
LOCAL_HEALTH_FAILURES = Counter(
    "edgehub_local_health_failures",
    "Looks at the local health source that got no usable answer.",
    registry=REGISTRY,
)
UPSTREAM_CUT = Counter(
    "edgehub_upstream_connections_cut",
    "Connections to a server cut when it went down.",
    ["server"],
    registry=REGISTRY,
)

CONNECT_FAILURES = Counter(
    "edgehub_connect_failures",
    "Connections to a server that the node could not open by its own fault: `node` (descriptors, ports) or `resolver`.",
    ["fault"],
    registry=REGISTRY,
)
CONNECTIONS_REFUSED = Counter(
    "edgehub_connections_refused",
    "Connections of clients closed at a bound: `peer`, `descriptors`, `late` (no request in time), `ahead` (sent on "
    "behind an open request), `behind` (sent on behind an answer), `frame` (of HTTP/2, too large), `accept`, `admin` "
    "(the oldest of the admin port).",
    ["reason"],
    registry=REGISTRY,
)
UNREAD_STREAMS = Counter(
    "edgehub_unread_streams_reset",
    "Streams of clients of HTTP/2 that were reset because their client did not read.",
    registry=REGISTRY,
)
REQUESTS_REFUSED = Counter(
    "edgehub_requests_refused",
    "Requests that were malformed, or larger than a bound, by the code of the answer.",
    ["code"],
    registry=REGISTRY,
)
BOUNDS_REACHED = Counter(
    "edgehub_bounds_reached",
    "Times that something was dropped or refused at a bound that no other metric counts.",
    ["bound"],
    registry=REGISTRY,
)
bounds.listen(lambda bound: BOUNDS_REACHED.labels(bound).inc())
REQUESTS_RESENT = Counter(
    "edgehub_requests_resent",
    "Requests that a server had not processed when it left, and that went out again.",
    registry=REGISTRY,
)

ADMIN_REFUSED = Counter(
    "edgehub_admin_refused",
    "Requests to the admin port refused at a bound: `turn` (reports that take long), `listener` (of the page).",
    ["bound"],
    registry=REGISTRY,
)

CACHE_WRITE_ERRORS = Counter(
    "edgehub_cache_write_errors", "Uses of the disk that failed; the hub goes on without.", registry=REGISTRY
)
RESPONSES_EVICTED = Counter(
    "edgehub_responses_evicted",
    "Kept answers that made way for newer ones: the share `node`, or `other` callers.",
    ["share"],
    registry=REGISTRY,
)
RESPONSES_UNKEPT = Counter(
    "edgehub_responses_unkept", "Answers not kept because too many wait for the disk.", registry=REGISTRY
)
GARBAGE = Counter(
    "edgehub_garbage",
    "Copies taken from the disk: `unused` for long, `unmounted` (of no pod on this node any more), `no room`.",
    ["reason"],
    registry=REGISTRY,
)
SOURCE_ERRORS = Counter(
    "edgehub_source_errors",
    "Lists and watches of the cloud that failed: broken off, malformed, or answered with an error. The copy stayed.",
    ["resource", "reason"],
    registry=REGISTRY,
)

JOURNAL_ENTRIES = Gauge("edgehub_journal_entries", "Writes that wait for the cloud.", registry=REGISTRY)
JOURNAL_REPLAYED = Counter(
    "edgehub_journal_replayed",
    "Writes that the cloud has taken afterwards: `status`, `event`.",
    ["kind"],
    registry=REGISTRY,
)
JOURNAL_DROPPED = Counter(
    "edgehub_journal_dropped",
    "Writes that never reached the cloud: `gone` (the object), `refused`, `no room`, `unreadable`.",
    ["kind", "reason"],
    registry=REGISTRY,
)
LEASE_RENEWALS = Counter(
    "edgehub_lease_renewals",
    "Renewals of this node's lease in the cloud: `ok`, `failed`.",
    ["outcome"],
    registry=REGISTRY,
)

CERTIFICATE_EXPIRY = Gauge(
    "edgehub_certificate_expiry_seconds",
    "Seconds until a certificate ends, below 0 afterwards: `client` (shown to the cloud), `serving` (the TLS port, the "
    "cluster's where there is one), `peer` (the peer port); NaN where there is none.",
    ["use"],
    registry=REGISTRY,
)

POOL_ROLE = Gauge(
    "edgehub_pool_role",
    "1 for the role of this hub in its pool: `none`, `leader` or `follower`.",
    ["role"],
    registry=REGISTRY,
)
PEER_WATCHERS = Gauge(
    "edgehub_peer_watchers",
    "Open watches of other nodes' hubs at the peer port.",
    ["resource"],
    registry=REGISTRY,
)
PEER_BYTES = Counter(
    "edgehub_peer_bytes",
    "Bytes of bodies `sent` to and `received` from the hubs of other nodes, by their nodes.",
    ["direction", "node"],
    registry=REGISTRY,
)
PEER_REFUSED = Counter(
    "edgehub_peer_refused",
    "Requests that the peer port refused: `no certificate`, `foreign certificate`, `no node`, `other pool`, `token`, "
    "`resource`, `verb`, `subresource`, `selection`, `path`, `no leader`, `unknown pool`, `too many`.",
    ["reason"],
    registry=REGISTRY,
)
SOURCE_SERVER = Gauge(
    "edgehub_source_server",
    "Sources of a shared resource by where they are read from: the node of a leader, or `cloud`.",
    ["resource", "server"],
    registry=REGISTRY,
)

PEER_LIMIT = 200
"""Different nodes as a metric's label: a pool of the size that the hub is made for, twice."""
COMPONENT_LIMIT = 100
"""Different component labels; a hostile client may send any number of names."""

component_label = BoundedLabels(COMPONENT_LIMIT).label
"""The component as a metric's label."""
peer_label = BoundedLabels(PEER_LIMIT).label
"""Another node as a metric's label."""


def watch_expiry(use: str, expiry: Callable[[], datetime | None]) -> None:
    """Show when the certificate for a use ends, as `expiry` says at each look at the metrics."""

    def seconds_left() -> float:
        ends = expiry()
        return (ends - datetime.now(UTC)).total_seconds() if ends is not None else math.nan

    CERTIFICATE_EXPIRY.labels(use).set_function(seconds_left)


def exposition() -> bytes:
    """All metrics in Prometheus' text format."""
    # Imports servers and clients of HTTP, before which the hub would wait at its start.
    from prometheus_client.exposition import generate_latest  # noqa: PLC0415 - as said above

    return generate_latest(REGISTRY)
