"""Logs why a source cannot follow the cloud: at once, then once a minute.

Outages of the link affect all sources, and are logged by `addons.ui.link_log`.
"""

from __future__ import annotations

import logging
import re

from addons.telemetry import metrics
from addons.telemetry.labels import group_resource_label
from addons.telemetry.log import Pace
from kube.differences.reader import UnusableRecord
from kube.errors import StatusError
from kube.http.client import TooLarge, Unreachable
from kube.peers import NODE_PREFIX
from kube.reflector.list_pages import Malformed
from kube.reflector.list_watch import ListWatch
from kube.reflector.reflector import Failure
from kube.requests.request_info import parse_request

REASONS = {
    Unreachable: "broken off",
    TooLarge: "too large",
    Malformed: "malformed",
    StatusError: "error",
    UnusableRecord: "difference",
}
"""The reasons why a source cannot read the cloud, as a metric's label."""

logger = logging.getLogger(__name__)

RBAC = "controllers/manifests/hub-rbac.yaml"
"""The manifest with the rights that every hub needs."""
RBAC_OF_NODES = "controllers/manifests/hub-nodes.yaml"
"""The manifest with the rights that hubs need if a filter reads the labels of all nodes."""

GIVEN = {
    **dict.fromkeys(
        (
            *("services", "endpoints", "endpointslices.discovery.k8s.io"),
            *("nodepools.apps.openyurt.io", "servicecidrs.networking.k8s.io"),
        ),
        RBAC,
    ),
    **dict.fromkeys(("nodes", "nodelabels.edgehub.io"), RBAC_OF_NODES),
}
"""The resources that each manifest lets nodes list and watch, in addition to the ConfigMaps in kube-system."""
OF_NODE = re.compile(rf'User "{NODE_PREFIX}')
"""The pattern of kube-apiserver's refusal of a node."""

_pace = Pace()


def remedy(path: str, error: str) -> str:
    """Return the remedy for a missing right: the manifest that grants it, if there is one."""
    info = parse_request("GET", path)
    type_ = info.type.group_resource if info.type is not None else ""
    given = RBAC if type_ == "configmaps" and info.namespace == "kube-system" else GIVEN.get(type_, "")
    if not given:
        return "no manifest of the hub's gives it: bind it to the hub's user"
    if 'User "' in error and not OF_NODE.search(error):
        return f"{given} gives it to nodes (the group system:nodes) alone: bind its roles to the hub's user"
    return f"apply {given}"


class Failures:
    """Counts and logs the interruptions of one source, each failure once."""

    def __init__(self, list_watch: ListWatch, user: str) -> None:
        self._path, self._user = list_watch.path, user
        resource = group_resource_label(list_watch.type.group, list_watch.type.resource)
        self._counters = {
            kind: metrics.SOURCE_ERRORS.labels(resource, text) for kind, text in REASONS.items()
        }
        self._noted: Failure | None = None

    def record(self, error: Failure | None, *, is_up: bool) -> None:
        """Log why the source cannot follow the cloud (`error`), unless an outage explains it."""
        if error is not None and error is not self._noted:
            self._counters[type(error)].inc()
            self._noted = error
            if is_up:
                log_failure(self._path, self._user, error)


def log_failure(path: str, user: str, error: Exception) -> None:
    """Log that a source's list or watch of `path` has failed. `user` is "" for the hub itself.

    A refusal of a caller's own token, and a broken connection, are logged at DEBUG only.
    """
    if user or not isinstance(error, StatusError):
        logger.debug("%s: %s", path, error)
    elif _pace.allows((path, error.code)):
        if error.code == 403:
            logger.warning("%s: the hub lacks a right: %s (%s)", path, remedy(path, str(error)), error)
        else:
            logger.info("%s: %s", path, error)
