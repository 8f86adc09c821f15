"""Events that tell a user what the manager did to an object, or why it did not."""

from __future__ import annotations

import logging
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime

from controllers.runtime.api import Api, NotLeading
from kube.errors import StatusError
from kube.http.client import Unreachable
from kube.requests.request_info import ResourceType

EVENTS = ResourceType("", "v1", "events")
REPEAT_AFTER = 600.0
"""Seconds in which the same thing about the same object is not said twice: a retry is no news."""
REMEMBERED = 1024
"""Things said that are remembered, the newest ones."""
LONGEST_MESSAGE = 1024
"""Characters, the API server's limit."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class About:
    """The object of an event."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class EventRecorder:
    """Best effort: an event that cannot be written is logged and never fails the work it tells of."""

    def __init__(self, api: Api, component: str) -> None:
        self._api = api
        self._component = component
        self._said: OrderedDict[tuple[About, str, str], float] = OrderedDict()

    async def normal(self, about: About, reason: str, message: str) -> None:
        await self._say(about, "Normal", reason, message)

    async def warning(self, about: About, reason: str, message: str) -> None:
        await self._say(about, "Warning", reason, message)

    async def _say(self, about: About, severity: str, reason: str, message: str) -> None:
        message = message[:LONGEST_MESSAGE]
        now = time.monotonic()
        said = (about, reason, message)
        if now - self._said.get(said, float("-inf")) < REPEAT_AFTER:
            return
        self._said[said] = now
        self._said.move_to_end(said)
        if len(self._said) > REMEMBERED:
            self._said.popitem(last=False)
        logger.info("%s %s/%s: %s: %s", about.kind, about.namespace, about.name, reason, message)
        try:
            await self._api.create(EVENTS, self._event(about, severity, reason, message))
        except (StatusError, Unreachable, NotLeading) as error:
            logger.warning("event %s of %s %s: %s", reason, about.kind, about.name, error)

    def _event(self, about: About, severity: str, reason: str, message: str) -> dict[str, object]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                # Events of objects without namespace are kept in this one, as client-go does.
                "namespace": about.namespace or "default",
                "name": f"{about.name}.{secrets.token_hex(8)}",
            },
            "involvedObject": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
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
