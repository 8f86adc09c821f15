"""Updates of this node's pods, requested by a program on the node: answers have the same codes and texts as YurtHub's.

The hub sends requests to the cloud with its node's identity, which is limited to the node's own pods: the caller's
identity is not used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from addons.telemetry import metrics
from addons.ui.handlers import AdminRequest, AdminResponse, RequestLimit, text_answer
from addons.ui.running_hub import RunningHub
from kube.errors import StatusError
from kube.http.client import Client, Unreachable
from kube.json_type import Json
from kube.pod_conditions import IMAGE_READY, NEED_UPGRADE, VERSION_PREFIX
from kube.requests.request_info import ResourceType

PODS = ResourceType("", "v1", "pods")
FIELD_MANAGER = "yurthub-ota"
MAX_UPDATES = 4
"""Maximum concurrent updates; each makes two requests to the cloud."""
DISCONNECTED = "OTA upgrade is not allowed when node is disconnected to cloud"
DAEMON_SET, STATIC = "DaemonSet", "Node"

PATH = re.compile(
    r"/openyurt\.io/v1/namespaces/(?P<namespace>[a-z0-9][a-z0-9-]*)"
    r"/pods/(?P<name>[a-z0-9][a-z0-9.-]*)/(?P<action>upgrade|imagepull)"
)


class Refused(Exception):
    """An error answer, with its code and text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def condition_of(pod: Json, kind: str) -> Json:
    """Return a condition of a pod; {} if it has none of this type."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return next((found for found in conditions if found.get("type") == kind), {})


def why_not_now(pod: Json, node: str) -> str:
    """Return why a pod cannot be upgraded on this node, in YurtHub's wording; "" if it can."""
    meta = pod["metadata"]
    name, on = f"{meta['namespace']}/{meta['name']}", (pod.get("spec") or {}).get("nodeName", "")
    if "deletionTimestamp" in meta:
        return f"Pod {name} is deleting, can not be updated"
    if on != node:
        return f"Pod: {name} is running on {on}, can not be updated"
    if condition_of(pod, NEED_UPGRADE).get("status") != "True":
        return f"Pod: {name} update status is False, can not be updated"
    return ""


def why_no_image(pod: Json) -> str:
    """Return why requested images are not ready, in YurtHub's wording; "" if they are, or none were requested."""
    image, meta = condition_of(pod, IMAGE_READY), pod["metadata"]
    if not image or (image.get("status") == "True" and image.get("message") == wanted_message(pod)):
        return ""
    reason, message = image.get("reason", ""), image.get("message", "")
    return f"Pod: {meta['namespace']}/{meta['name']} image is not ready, reason: {reason}, message: {message}"


def wanted_message(pod: Json) -> str:
    """Return the condition message for the revision to which the pod is to be upgraded."""
    revision = str(condition_of(pod, NEED_UPGRADE).get("message", "")).removeprefix(VERSION_PREFIX)
    return VERSION_PREFIX + revision


class PodUpdates:
    """Updates one pod by requests to the cloud. `Refused` if that fails."""

    def __init__(self, client: Client, node: str, namespace: str, name: str) -> None:
        self._client = client
        self._node = node
        self._named = f"{namespace}/{name}"
        self._path = PODS.path(namespace, name)

    async def upgrade(self) -> str:
        """Delete the pod, so that its DaemonSet creates a new one."""
        pod = await self._pod()
        if why := why_not_now(pod, self._node):
            why = f"Failed to check pod {self._named} status, error: {why}"
        elif why := why_no_image(pod):
            why = f"Failed to check pod {self._named} image ready, error: {why}"
        if why:
            raise Refused(403, f"Pre check update pod failed, {why}")
        owners = pod["metadata"].get("ownerReferences")
        if not owners:
            raise Refused(400, "Pod has no owner references")
        kind = owners[0].get("kind", "")
        if kind == STATIC:
            raise Refused(403, "Configmap for static pod does not exist")
        if kind != DAEMON_SET:
            raise Refused(400, f"Not support ota upgrade pod type {kind}")
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": _this(pod)}
        await self._ask("DELETE", self._path, options, refusal="Apply update failed")
        return f"Start updating pod {self._named}"

    async def pull_images(self) -> str:
        """Request the manager to pull the images of the pod's new template, by setting a condition of the pod."""
        pod = await self._pod()
        if why := why_not_now(pod, self._node):
            raise Refused(403, f"Failed to check pod status {self._named}, error: {why}")
        condition = {"type": IMAGE_READY, "status": "False", "reason": "", "message": wanted_message(pod)}
        patch = {"metadata": _this(pod), "status": {"conditions": [condition]}}
        await self._ask(
            *("PATCH", f"{self._path}/status", patch),
            refusal="Patch pod status for imagepull failed",
            content_type="application/strategic-merge-patch+json",
            query={"fieldManager": FIELD_MANAGER},
        )
        return f"Image pre-pull requested for pod {self._named}"

    async def _pod(self) -> Json:
        """Return the pod's present state in the cloud."""
        return await self._ask("GET", self._path, refusal="Get pod failed", says_why=True)

    async def _ask(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        refusal: str,
        says_why: bool = False,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Json:
        sent = None if body is None else orjson.dumps(body)
        try:
            answer = await self._client.request(
                method, path, query=query, body=sent, content_type=content_type
            )
            found: Json = answer.found(dict[str, Any])
        except (StatusError, Unreachable) as error:
            raise Refused(500, f"{refusal}, {error}" if says_why else refusal) from error
        return found


def _this(pod: Json) -> Json:
    """Return the precondition that a write applies to this pod, not to a later one with the same name."""
    return {"uid": pod["metadata"]["uid"]}


class UpdatePage:
    """Handles the requests for updates, a few at a time."""

    def __init__(self) -> None:
        self.limit = RequestLimit(
            MAX_UPDATES, "update", "too many updates are being asked for", retry_after=1
        )

    async def update(self, request: AdminRequest) -> AdminResponse:
        action = request.names["action"]
        with self.limit.slot():
            try:
                updates = _updates(request.hub, request.names)
                text = await (updates.upgrade() if action == "upgrade" else updates.pull_images())
            except Refused as refused:
                metrics.POD_UPDATES.labels(action, str(refused.code)).inc()
                return text_answer(str(refused), status=refused.code)
        metrics.POD_UPDATES.labels(action, "200").inc()
        return text_answer(text, "application/json")


def _updates(hub: RunningHub, named: Mapping[str, str]) -> PodUpdates:
    if hub.client is None or not hub.cloud.is_up:
        raise Refused(503, DISCONNECTED)
    return PodUpdates(hub.client, hub.settings.node, named["namespace"], named["name"])
