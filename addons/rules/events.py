"""Reports bad entries of the rules as Events on the ConfigMap. The hubs of a cluster share one Event for each entry."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import json
import logging
from collections import deque

from addons.rules.table import MAX_PROBLEMS, Problem
from addons.telemetry import metrics
from addons.telemetry.labels import HUB
from kube.errors import StatusError
from kube.http.client import Client, Unreachable
from kube.requests.request_info import ResourceType
from kube.store.store import Key

EVENTS = ResourceType("", "v1", "events")
REASON = "BadRule"
PAUSE = 1.0
"""Seconds between two Events: every hub of the cluster sends its own after an edit."""

logger = logging.getLogger(__name__)


def event_of(
    problem: Problem, configmap: Key, uid: str, node: str, now: datetime.datetime
) -> dict[str, object]:
    """The Event about a problem. Its name is the same on every node, so that a thousand hubs make one.

    `uid` is the ConfigMap's: `kubectl describe` finds Events by it.
    """
    namespace, name = configmap
    told = "\0".join((uid, problem.key, problem.text, problem.why))
    digest = hashlib.sha256(told.encode()).hexdigest()[:16]
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{digest}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "namespace": namespace,
            "name": name,
            **({"uid": uid} if uid else {}),
        },
        "type": "Warning",
        "reason": REASON,
        "message": f"key {problem.key}: {problem.text!r} is skipped: {problem.why}",
        "source": {"component": HUB, "host": node},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }


class ProblemEvents:
    """Sends an Event for each problem, one after the other, so that a bad edit costs the cloud a trickle."""

    def __init__(self, client: Client, configmap: Key, node: str, pause: float = PAUSE) -> None:
        self._client = client
        self._configmap = configmap
        self._node = node
        self._pause = pause
        self._waiting: deque[tuple[Problem, str]] = deque()
        self._reported = asyncio.Event()

    def report(self, problem: Problem, uid: str) -> None:
        """Send an Event about this problem of the ConfigMap `uid` when its turn comes.

        Beyond MAX_PROBLEMS the oldest are left out.
        """
        if len(self._waiting) == MAX_PROBLEMS:
            self._waiting.popleft()
            metrics.RULE_EVENTS_DROPPED.inc()
        self._waiting.append((problem, uid))
        self._reported.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._reported.wait()
            self._reported.clear()
            while self._waiting:
                now = datetime.datetime.now(datetime.UTC)
                problem, uid = self._waiting.popleft()
                event = event_of(problem, self._configmap, uid, self._node, now)
                await send_event(self._client, event, self._configmap[0])
                await asyncio.sleep(self._pause)


async def send_event(client: Client, event: dict[str, object], namespace: str) -> None:
    """Create an Event, or leave the one that another hub made. A failure is logged: the log has the problem itself."""
    try:
        await client.request("POST", EVENTS.path(namespace), body=json.dumps(event).encode())
    except StatusError as error:
        if error.code != 409:
            logger.info("an Event was refused: %s", error)
    except Unreachable as error:
        logger.info("an Event was not sent: %s", error)
