"""Reports to the cloud after an outage the Node conditions that kubelet reported last, if kubelet is alive.

kube-controller-manager sets a node's conditions to Unknown while its Lease is late. kubelet compares its own copy of
the Node every 10 s, and would not report earlier.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable

import orjson

from addons.link.health import Cloud
from addons.offline.offline_reads import OfflineReads
from addons.requests.cloud_identity import HUB_IDENTITY
from kube.errors import StatusError
from kube.http.client import Client, Unreachable
from kube.json_type import Json
from kube.objects.object_patches import STRATEGIC_MERGE_PATCH
from kube.objects.status_update import status_document
from kube.requests.request_info import ResourceType, parse_request
from kube.wire.json_fields import parse_object

NODES = ResourceType("", "v1", "nodes")
ATTEMPTS = 3
"""Attempts to send the conditions: other writers, such as the journal, write the Node at the same time."""
TIMEOUT = 10.0
"""Seconds for a request; after that time kubelet has reported to the cloud itself."""

logger = logging.getLogger(__name__)


class PostOutageSync:
    """Waits for the end of each outage, and updates the Node in the cloud."""

    def __init__(
        self,
        node: str,
        client: Client,
        objects: OfflineReads,
        cloud: Cloud,
        is_alive: Callable[[], bool],
    ) -> None:
        """`is_alive` returns whether kubelet renews its Lease."""
        self._path = NODES.path("", node)
        self._client = client
        self._objects = objects
        self._cloud = cloud
        self._is_alive = is_alive

    async def run(self) -> None:
        """Report after each outage until cancelled."""
        was_up = False
        while True:
            if self._cloud.is_up and not was_up and self._is_alive():
                try:
                    await self._report()
                except (StatusError, Unreachable) as error:
                    logger.info("node status not sent, kubelet will send it: %s", error)
                except Exception:
                    # The task must live on, for the next outage.
                    logger.exception("node status not sent, kubelet will send it")
            was_up = self._cloud.is_up
            await self._cloud.changed.wait()

    async def _report(self) -> None:
        # First of all: the next list replaces the copy, and with it kubelet's report.
        reported = await self._reported()
        for _ in range(ATTEMPTS):
            answer = await self._client.request("GET", self._path, timeout=TIMEOUT)
            patch = return_patch(parse_object(answer.body), reported, datetime.datetime.now(datetime.UTC))
            if not patch:
                return
            path, body = f"{self._path}/status", orjson.dumps(patch)
            try:
                await self._client.request(
                    "PATCH", path, body=body, content_type=STRATEGIC_MERGE_PATCH, timeout=TIMEOUT
                )
            except StatusError as error:
                if error.code != 409:
                    raise
            else:
                logger.info("status of the node sent to the cloud")
                return

    async def _reported(self) -> Json:
        """Return the Node as kubelet reported it; {} if the hub has no copy."""
        for item in await self._objects.find(HUB_IDENTITY, parse_request("GET", self._path)):
            codec = item.store.codec
            return status_document(codec.encoding, item.store.api_version, "Node", item.raw)
        return {}


def return_patch(node: Json, reported: Json, now: datetime.datetime) -> Json:
    """Return the strategic merge patch that sets each Unknown condition to the reported one; {} if there is none."""
    known = {
        condition["type"]: condition
        for condition in _conditions(reported)
        if condition["status"] != "Unknown"
    }
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [
        # The current time: an unchanged heartbeat time would not show that the node is alive.
        known[condition["type"]] | {"lastHeartbeatTime": stamp, "lastTransitionTime": stamp}
        for condition in _conditions(node)
        if condition["status"] == "Unknown" and condition["type"] in known
    ]
    if not conditions or node["metadata"]["uid"] != reported["metadata"]["uid"]:
        return {}
    version = node["metadata"]["resourceVersion"]
    return {"metadata": {"resourceVersion": version}, "status": {"conditions": conditions}}


def _conditions(node: Json) -> list[Json]:
    conditions: list[Json] = node.get("status", {}).get("conditions") or []
    return conditions
