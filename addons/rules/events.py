"""Tells the cluster about bad entries of the rules: one Event on the ConfigMap for each, whichever hub is first."""

from __future__ import annotations

import datetime
import hashlib
import json
import logging

from addons.rules.table import Problem
from kube.errors import StatusError
from kube.http.client import Client, Unreachable
from kube.requests.request_info import ResourceType
from kube.store.store import Key

EVENTS = ResourceType("", "v1", "events")
REASON = "BadRule"

logger = logging.getLogger(__name__)


def event_of(problem: Problem, configmap: Key, node: str, now: datetime.datetime) -> dict[str, object]:
    """The Event about a problem. Its name is the same on every node, so that a thousand hubs make one."""
    namespace, name = configmap
    digest = hashlib.sha256(f"{problem.key}\0{problem.text}\0{problem.why}".encode()).hexdigest()[:16]
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{digest}", "namespace": namespace},
        "involvedObject": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": namespace, "name": name},
        "type": "Warning",
        "reason": REASON,
        "message": f"key {problem.key}: {problem.text!r} is skipped: {problem.why}",
        "source": {"component": "edgehub", "host": node},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }


async def send_event(client: Client, event: dict[str, object], namespace: str) -> None:
    """Create an Event, or leave the one that another hub made. A failure is logged: the log has the problem itself."""
    try:
        await client.request("POST", EVENTS.path(namespace), body=json.dumps(event).encode())
    except StatusError as error:
        if error.code != 409:
            logger.info("the Event about a bad rule was refused: %s", error)
    except Unreachable as error:
        logger.info("the Event about a bad rule was not sent: %s", error)
