"""Writes Events that tell a user what the manager did to an object, or why it could not."""

from __future__ import annotations

import logging
import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from controllers.runtime.unstructured import timestamp
from controllers.runtime.write_client import NotLeading, WriteClient
from kube.bounds import Recent
from kube.errors import StatusError
from kube.http.client import Unreachable
from kube.json_type import Json
from kube.requests.request_info import ResourceType

EVENTS = ResourceType("", "v1", "events")
REPEAT_AFTER = 600.0
"""Seconds in which an identical Event is not written again: a retry is no news."""
REMEMBERED = 1024
"""How many Events are remembered for that, the newest ones."""
LONGEST_MESSAGE = 1024
"""Characters; the API server refuses longer ones."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """The object that an Event is about, as core/v1 names it."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @property
    def owner(self) -> Json:
        """An ownerReference, by which garbage collection deletes dependents with this object."""
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


class EventRecorder:
    """Records Events, best effort: a failed write is logged and never fails the reconcile that it reports."""

    def __init__(self, api: WriteClient, component: str) -> None:
        self._api = api
        self._component = component
        self._recent: Recent[tuple[ObjectReference, str, str], float] = Recent(
            REMEMBERED, "events just recorded"
        )

    async def normal(self, reference: ObjectReference, reason: str, message: str) -> None:
        await self._record(reference, "Normal", reason, message)

    async def warning(self, reference: ObjectReference, reason: str, message: str) -> None:
        await self._record(reference, "Warning", reason, message)

    async def _record(self, reference: ObjectReference, severity: str, reason: str, message: str) -> None:
        message = message[:LONGEST_MESSAGE]
        now = time.monotonic()
        event = (reference, reason, message)
        if now - self._recent.get(event, float("-inf")) < REPEAT_AFTER:
            return
        self._recent[event] = now
        logger.info("%s %s/%s: %s: %s", reference.kind, reference.namespace, reference.name, reason, message)
        try:
            await self._api.create(EVENTS, self._event(reference, severity, reason, message))
        except (StatusError, Unreachable, NotLeading) as error:
            logger.warning("event %s of %s %s: %s", reason, reference.kind, reference.name, error)

    def _event(
        self, reference: ObjectReference, severity: str, reason: str, message: str
    ) -> dict[str, object]:
        now = timestamp(datetime.now(UTC))
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                # Events of objects without namespace are kept in this one, as client-go does.
                "namespace": reference.namespace or "default",
                "name": f"{reference.name}.{secrets.token_hex(8)}",
            },
            "involvedObject": {
                "apiVersion": reference.api_version,
                "kind": reference.kind,
                "namespace": reference.namespace,
                "name": reference.name,
                "uid": reference.uid,
            },
            "type": severity,
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
