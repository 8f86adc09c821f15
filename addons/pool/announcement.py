"""Announces that this hub can lead its pool: an annotation of the Node, which the node itself may write and the manager
reads."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable

from addons.views.source import Source
from kube.concurrency.backoff import Backoff
from kube.concurrency.notifier import Notifier, completes_within
from kube.errors import StatusError
from kube.http.client import Client, Unreachable
from kube.peers import CLOSED, PEER_ANNOTATION
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType

NODES = ResourceType("", "v1", "nodes")
PROOF = 5.0
"""Seconds within which the cloud must confirm the stored copy of the Node, if that copy already has the annotation."""
METADATA = ListWatch(NODES, metadata_only=True).accept_as("PartialObjectMetadata")
"""Accept header that requests metadata only: a complete Node lists the names of all its images."""

logger = logging.getLogger(__name__)


class Announcement:
    """Writes the annotation when its value changes, and retries until the cloud has accepted it."""

    def __init__(
        self, node: str, port: int, client: Client, own_node: Callable[[], Source] | None = None
    ) -> None:
        """`own_node` gives the source of this node's Node, where the hub has one."""
        self._node, self._path = node, NODES.path(name=node)
        self._own_node = own_node
        self._port = port
        self._client = client
        self._wanted: bool | None = None
        self._changed = Notifier()

    def announce(self, can_lead: bool) -> None:
        """Set the value that the Node's annotation must have from now on."""
        self._wanted = can_lead
        self._changed.notify()

    async def run(self) -> None:
        """Write the announcement, until cancelled."""
        backoff, written = Backoff(first=1.0), None
        while True:
            changed, wanted = self._changed.wait(), self._wanted
            if wanted is None or wanted is written:
                await changed
                continue
            try:
                value = str(self._port) if wanted else CLOSED
                if not await self._is_written(value):
                    await self._write(value)
                written = wanted
                backoff.forget()
            except (StatusError, Unreachable) as error:
                logger.info("the node's annotation %s is not written yet: %s", PEER_ANNOTATION, error)
                await completes_within(backoff.next(), changed)

    async def _is_written(self, value: str) -> bool:
        """Return whether the cloud's Node already has the annotation, from an earlier process."""
        if self._own_node is None:
            return False
        source = self._own_node()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PROOF):
                while not source.reflector.is_proven:
                    await source.reflector.changed.wait()
        item = source.store.get(("", self._node))
        if item is None or not source.reflector.is_proven:
            return False
        return item.decode().annotations.get(PEER_ANNOTATION) == value

    async def _write(self, value: str) -> None:
        patch = {"metadata": {"annotations": {PEER_ANNOTATION: value}}}
        body, kind = json.dumps(patch).encode(), "application/merge-patch+json"
        await self._client.request("PATCH", self._path, accept=METADATA, body=body, content_type=kind)
