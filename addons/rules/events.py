"""Reports bad entries of the rules as Events on the ConfigMap. The hubs of a cluster share one Event for each entry."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import json
import logging

from addons.rules.table import MAX_PROBLEMS, Problem
from addons.telemetry import metrics
from addons.telemetry.labels import HUB
from kube.errors import StatusError
from kube.http.client import Client, Unreachable
from kube.json_type import Json
from kube.requests.request_info import ResourceType
from kube.store.store import Key

EVENTS = ResourceType("", "v1", "events")
REASON = "BadRule"
PAUSE = 1.0
"""Seconds between two Events, because every hub of the cluster sends its own after an edit."""

logger = logging.getLogger(__name__)


def event_of(problem: Problem, configmap: Key, uid: str, node: str, now: datetime.datetime) -> Json:
    """Return the Event about a problem. Its name is the same on every node, so that a thousand hubs create one.

    `uid` is the ConfigMap's, by which `kubectl describe` finds Events.
    """
    namespace, name = configmap
    identifying = "\0".join((uid, problem.key, problem.text, problem.why))
    digest = hashlib.sha256(identifying.encode()).hexdigest()[:16]
    involved = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": namespace, "name": name}
    message = f"key {problem.key}: {problem.text!r} is skipped: {problem.why}"
    return warning(involved | ({"uid": uid} if uid else {}), digest, REASON, message, node, now)


def about_node(node: str) -> Json:
    """Return the involved object of an Event about a node, with the name as `uid`, as kubelet writes it and `kubectl
    describe node` expects it."""
    return {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node}


def warning(
    involved: Json, suffix: str, reason: str, message: str, node: str, now: datetime.datetime
) -> Json:
    """Return a warning Event of the hub of `node`. Its name is the object's with `suffix`, so that sending it again
    creates no other.

    Events about objects without a namespace are in `default`.
    """
    stamp = now.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    namespace = involved.get("namespace", "default")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{involved['name']}.{suffix}", "namespace": namespace},
        "involvedObject": involved,
        "type": "Warning",
        "reason": reason,
        "message": message,
        "source": {"component": HUB, "host": node},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }


class ProblemEvents:
    """Sends an Event for each problem, one after the other, so that a bad edit does not flood the cloud."""

    def __init__(self, client: Client, configmap: Key, node: str) -> None:
        self._client = client
        self._configmap = configmap
        self._node = node
        self._waiting: asyncio.Queue[tuple[Problem, str]] = asyncio.Queue(MAX_PROBLEMS)

    def report(self, problem: Problem, uid: str) -> None:
        """Send an Event about this problem of the ConfigMap `uid`, paced.

        Beyond MAX_PROBLEMS the oldest are dropped.
        """
        if self._waiting.full():
            self._waiting.get_nowait()
            metrics.RULE_EVENTS_DROPPED.inc()
        self._waiting.put_nowait((problem, uid))

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            problem, uid = await self._waiting.get()
            now = datetime.datetime.now(datetime.UTC)
            await send_event(self._client, event_of(problem, self._configmap, uid, self._node, now))
            await asyncio.sleep(PAUSE)


async def send_event(client: Client, event: Json) -> None:
    """Create an Event, unless another hub has created it. A failure is only logged: the log has the problem itself,
    too."""
    try:
        path = EVENTS.path(event["metadata"]["namespace"])
        await client.request("POST", path, body=json.dumps(event).encode())
    except StatusError as error:
        if error.code != 409:
            logger.info("an Event was refused: %s", error)
    except Unreachable as error:
        logger.info("an Event was not sent: %s", error)
