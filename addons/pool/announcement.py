"""Announces to the manager that this hub can lead its pool: an annotation that the node may write itself."""

from __future__ import annotations

import json
import logging

from kube.concurrency.backoff import Backoff
from kube.concurrency.notifier import Notifier, comes_within
from kube.errors import StatusError
from kube.http.client import Client, Unreachable
from kube.peers import CLOSED, PEER_ANNOTATION
from kube.requests.request_info import ResourceType

NODES = ResourceType("", "v1", "nodes")

logger = logging.getLogger(__name__)


class Announcement:
    """Writes the annotation whenever it changes, and again until the cloud has taken it."""

    def __init__(self, node: str, port: int, client: Client) -> None:
        self._path = NODES.path(name=node)
        self._port = port
        self._client = client
        self._wanted: bool | None = None
        self._changed = Notifier()

    def announce(self, can_lead: bool) -> None:
        """Announce it on the Node from now on."""
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
                await self._write(str(self._port) if wanted else CLOSED)
                written = wanted
                backoff.forget()
            except (StatusError, Unreachable) as error:
                logger.info("the node's annotation %s is not written yet: %s", PEER_ANNOTATION, error)
                await comes_within(backoff.next(), changed)

    async def _write(self, value: str) -> None:
        patch = {"metadata": {"annotations": {PEER_ANNOTATION: value}}}
        await self._client.request(
            "PATCH", self._path, body=json.dumps(patch).encode(), content_type="application/merge-patch+json"
        )
