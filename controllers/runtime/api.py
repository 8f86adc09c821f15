"""Writes to the Kubernetes API, each behind a gate: who is not the leader begins no write.

The gate is looked at twice: before anything is done, and when the connection is there, so that a process that was put
to sleep between the two sends nothing when it wakes. One that falls asleep in the very act sends that one write. It
does no harm: it names the version or uid that it is about, or changes what the leader of then watches and puts right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from controllers.runtime import metrics
from controllers.runtime.reading import mapping, metadata, text
from kube.errors import StatusError
from kube.http.client import Client, Unreachable
from kube.json_type import Json
from kube.requests.request_info import ResourceType

FIELD_MANAGER = "edgehub-manager"
"""The name under which the server notes who wrote a field."""
WRITE_TIMEOUT = 10.0
"""Seconds to the answer to a write, as long as the Lease is good for that long."""

type Gate = Callable[[], float]
"""Seconds for which this process may still write; 0 or less when it may not."""


class NotLeading(Exception):
    """This process has no Lease now, and so does not write."""


def only_while(gate: Gate) -> Callable[[], None]:
    """The second look, for `controllers.runtime.connection.open_session`; it raises NotLeading."""

    def look() -> None:
        if gate() <= 0:
            raise NotLeading("the Lease ended before the write was sent")

    return look


class Api:
    """Errors are those of `kube.http.client.Client.request`, and NotLeading."""

    def __init__(self, client: Client, gate: Gate) -> None:
        self._client = client
        self._gate = gate

    async def create(self, resource: ResourceType, obj: Json) -> Json:
        """POST; 409 AlreadyExists when the name is taken."""
        path = resource.path(text(metadata(obj).get("namespace")))
        return await self._write("create", resource, "POST", path, obj)

    async def apply(self, resource: ResourceType, obj: Json) -> Json:
        """Server-side apply: the fields given become so and belong to us; those of others stay as they are.

        Fields that we applied before and no longer name are removed. Creates what is not there.
        """
        path = resource.path(text(metadata(obj).get("namespace")), text(metadata(obj).get("name")))
        return await self._write(
            "apply", resource, "PATCH", path, obj, "application/apply-patch+yaml", {"force": "true"}
        )

    async def merge(
        self, resource: ResourceType, namespace: str, name: str, patch: Json, subresource: str = ""
    ) -> Json:
        """A JSON merge patch. With metadata.resourceVersion in the patch, 409 when the object has moved on."""
        path = resource.path(namespace, name) + (f"/{subresource}" if subresource else "")
        return await self._write("patch", resource, "PATCH", path, patch, "application/merge-patch+json")

    async def delete(self, resource: ResourceType, namespace: str, name: str, uid: str) -> None:
        """Deletes the object of this uid, no other of the same name; one that is gone is no error."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        try:
            await self._write("delete", resource, "DELETE", resource.path(namespace, name), options)
        except StatusError as error:
            if error.code != 404:
                raise

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
        left = self._gate()
        if left <= 0:
            raise NotLeading(f"{method} {path}")
        code = "none"
        try:
            answer = await self._client.request(
                method,
                path,
                query={} if method == "DELETE" else {"fieldManager": FIELD_MANAGER, **(query or {})},
                body=orjson.dumps(body),
                content_type=content_type,
                timeout=min(WRITE_TIMEOUT, left),
            )
            code = "200"
            return _json(answer.body)
        except StatusError as error:
            code = str(error.code)
            raise
        finally:
            metrics.WRITES.labels(resource.group_resource, verb, code).inc()


def _json(body: bytes) -> dict[str, Any]:
    try:
        return mapping(orjson.loads(body))
    except orjson.JSONDecodeError:
        raise Unreachable("the answer to a write is not JSON") from None
