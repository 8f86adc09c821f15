"""Writes to the Kubernetes API, behind a gate: only the leader starts a write.

`WriteClient` checks the gate before it prepares a request. `refuse_unless_leading` checks it again when the connection
is open, so that a process that was suspended between the two sends nothing when it wakes. A process that is suspended
while it sends completes that one write, which does no harm: it names the resourceVersion or uid that it is about, or
changes a field that the new leader watches and corrects.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import orjson

from controllers.runtime import metrics
from controllers.runtime.unstructured import metadata, text, timestamp
from kube.bounds import Recent
from kube.errors import StatusError
from kube.http.client import Client, Unreachable
from kube.json_type import Json
from kube.requests.request_info import ResourceType
from kube.wire.json_fields import parse_object

FIELD_MANAGER = "edgehub-manager"
"""The fieldManager of all writes."""
WRITE_TIMEOUT = 10.0
"""Seconds that a write may take; less when the Lease ends earlier."""

type Gate = Callable[[], float]
"""Seconds for which this process may still write; 0 or less when it is not the leader."""


class NotLeading(Exception):
    """This process does not hold the Lease, so it must not write."""


def refuse_unless_leading(gate: Gate) -> Callable[[], None]:
    """Check the gate again, as `before_sending` of `controllers.runtime.connection.AccountSession`; raise
    NotLeading."""

    def check() -> None:
        if gate() <= 0:
            raise NotLeading("the Lease ended before the write was sent")

    return check


@contextmanager
def unless_gone() -> Iterator[None]:
    """Ignore a 404: the object was deleted, or its kind has no such subresource."""
    try:
        yield
    except StatusError as error:
        if error.code != 404:
            raise


class WriteClient:
    """Creates, patches and deletes objects. Raises what `kube.http.client.Client.request` raises, and NotLeading."""

    def __init__(self, client: Client, gate: Gate) -> None:
        self._client = client
        self._gate = gate

    async def create(self, resource: ResourceType, obj: Json) -> Json:
        """Create an object by POST; 409 AlreadyExists if the name is taken."""
        path = resource.path(text(metadata(obj).get("namespace")))
        return await self._write("create", resource, "POST", path, obj)

    async def apply(self, resource: ResourceType, obj: Json, subresource: str = "") -> Json:
        """Send a server-side apply: own the given fields and leave other clients' fields unchanged.

        The server removes fields that were applied before and are no longer named. It creates a missing object, except
        for a subresource.
        """
        path = resource.path(text(metadata(obj).get("namespace")), text(metadata(obj).get("name")))
        path += f"/{subresource}" if subresource else ""
        return await self._write(
            "apply", resource, "PATCH", path, obj, "application/apply-patch+yaml", {"force": "true"}
        )

    async def merge_patch(
        self, resource: ResourceType, namespace: str, name: str, patch: Json, subresource: str = ""
    ) -> Json:
        """Send a JSON merge patch. If its metadata.resourceVersion is out of date, the server answers 409."""
        path = resource.path(namespace, name) + (f"/{subresource}" if subresource else "")
        return await self._write("patch", resource, "PATCH", path, patch, "application/merge-patch+json")

    async def strategic_merge_patch(
        self, resource: ResourceType, namespace: str, name: str, patch: Json, subresource: str = ""
    ) -> Json:
        """Send a strategic merge patch, for example of one condition among others.

        If its metadata.uid is that of a previous object with this name, the server answers 409.
        """
        path = resource.path(namespace, name) + (f"/{subresource}" if subresource else "")
        return await self._write(
            "patch", resource, "PATCH", path, patch, "application/strategic-merge-patch+json"
        )

    async def delete(self, resource: ResourceType, namespace: str, name: str, uid: str) -> None:
        """Delete the object with this uid, not a later one of the same name. A missing object is no error."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        with unless_gone():
            await self._write("delete", resource, "DELETE", resource.path(namespace, name), options)

    async def _write(
        self,
        verb: str,
        resource: ResourceType,
        method: str,
        path: str,
        body: Json,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Json:
        remaining = self._gate()
        if remaining <= 0:
            raise NotLeading(f"{method} {path}")
        code = "none"
        try:
            answer = await self._client.request(
                method,
                path,
                query={} if method == "DELETE" else {"fieldManager": FIELD_MANAGER, **(query or {})},
                body=orjson.dumps(body),
                content_type=content_type,
                timeout=min(WRITE_TIMEOUT, remaining),
            )
            code = "200"
            return parsed_answer(answer.body)
        except StatusError as error:
            code = str(error.code)
            raise
        finally:
            metrics.WRITES.labels(resource.group_resource, verb, code).inc()


def parsed_answer(body: bytes) -> Json:
    """Parse the object in the API server's response; Unreachable if there is none."""
    try:
        return parse_object(body)
    except ValueError as error:
        raise Unreachable(f"the answer is no object: {error}") from None


EVENTS = ResourceType("", "v1", "events")
REPEAT_AFTER = 600.0
"""Seconds in which an identical Event is not written again."""
REMEMBERED = 1024
"""Events that are remembered, the newest ones."""
LONGEST_MESSAGE = 1024
"""Characters of a message; the API server refuses longer ones."""

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
        """Return an ownerReference, by which garbage collection deletes dependents with this object."""
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
        # The output of a Job's program has lines, and a line break would not be printed.
        for line in message.splitlines() or [""]:
            logger.info("%s %s/%s: %s: %s", reference.kind, reference.namespace, reference.name, reason, line)
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
                # Events of cluster-scoped objects are in this namespace, as in client-go.
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
