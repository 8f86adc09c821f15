"""Keeps the pods of an autonomous node on it, and ready, while the cloud does not hear from the node.

The manager acts in advance: kube-controller-manager evicts by the tolerations of the pods, and an admission policy of
the API server (autonomy-endpoints.yaml) keeps pods ready on the nodes that a ConfigMap names. An API server without
such policies calls the manager's webhook, which reads the same ConfigMap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import orjson

from controllers.cluster.admission_reviews import read_request, response
from controllers.cluster.kinds import NODES, PODS, RECORDS, Node, Pod
from controllers.runtime.controller import Context, Controller, own_key
from controllers.runtime.informer import one_object
from controllers.runtime.unstructured import copied, mapping, objects, text, texts, timestamp
from controllers.runtime.write_client import unless_gone
from kube.errors import StatusError
from kube.json_type import Json
from kube.requests.query import parse_duration
from kube.requests.request_info import ResourceType
from kube.store.store import Key

DURATION = "node.openyurt.io/autonomy-duration"
"""The Node's annotation with the duration, in Go's format; 0 or less means for ever."""
FOR_EVER = ("apps.openyurt.io/binding", "node.beta.openyurt.io/autonomy")
"""OpenYurt's older annotations: with the value "true" they mean for ever, and take precedence over `DURATION`."""
LONGEST_RECORD = 9
"""Digits of recorded seconds, 30 years: any writer of the pod could write a longer number."""
DISABLED_SECONDS = 0
"""Seconds of a disabled toleration: a pod's tolerations cannot be removed, and 0 seconds have no effect."""
SAFE_SECONDS = 60
"""Seconds. The shortest toleration that leaves the manager, or its successor, time to extend it between the taint and
the eviction. A shorter or missing one is extended when the pod is bound."""
REVIEW_PATH = "/keep-pods-ready"


@dataclass(frozen=True, slots=True)
class Autonomy:
    """The seconds for which a node is autonomous; None means for ever. `error` says why an annotation is ignored."""

    seconds: int | None = None
    error: str = ""

    def is_over(self, since: str, now: datetime) -> bool:
        """Whether a node that was last heard from at `since` has been away for the whole autonomy."""
        if self.seconds is None or not since:
            return False
        return now - datetime.fromisoformat(since) >= timedelta(seconds=self.seconds)

    def __str__(self) -> str:
        return "for ever" if self.seconds is None else f"{self.seconds} s"


def read_autonomy(annotations: Mapping[str, str]) -> Autonomy | None:
    """Parse the autonomy in a Node's annotations; None without any."""
    if any(annotations.get(name) == "true" for name in FOR_EVER):
        return Autonomy()
    if DURATION not in annotations:
        return None
    try:
        seconds = parse_duration(annotations[DURATION])
    except ValueError as error:
        return Autonomy(error=str(error))
    return Autonomy(None if seconds <= 0 else max(1, int(seconds)))


def toleration_patch(pod: Pod, node: Node, autonomy: Autonomy | None, default: int) -> Json:
    """Return the merge patch that makes a pod tolerate its node's absence for the seconds of `autonomy`; {} if nothing
    changes.

    `default` is the API server's default toleration in seconds (admission plugin DefaultTolerationSeconds).

    A pod that tolerates the taint long enough is not changed until its node has the taint. A pod's own tolerations,
    such as those of DaemonSets and static pods, are never changed. The original seconds are recorded, and restored when
    autonomy ends.

    The taint eviction controller schedules an eviction once, and does not move it when the seconds change, but cancels
    it when the pod tolerates the taint without limit. So while the node has the taint, a pod first gets an unlimited
    toleration. The next reconcile writes the seconds.
    """
    tolerations: list[Json] = copied(list(pod.tolerations))
    records: dict[str, str | None] = {}
    for taint, record in RECORDS.items():
        tolerating = [toleration for toleration in tolerations if _tolerates(toleration, taint)]
        before = pod.records.get(record)
        if len(tolerating) > 1 or (tolerating and not _is_ours(tolerating[0], taint, before, default)):
            continue
        if autonomy is None and before is None:
            continue
        toleration: Json = (
            tolerating[0] if tolerating else {"key": taint, "operator": "Exists", "effect": "NoExecute"}
        )
        given = toleration.get("tolerationSeconds") if tolerating else DISABLED_SECONDS
        if before is None and (given is None or given >= SAFE_SECONDS) and not _has_taint(node, taint):
            continue
        wanted = _recorded(before, default) if autonomy is None else autonomy.seconds
        if given is not None and given != wanted and _has_taint(node, taint):
            wanted = None
        elif autonomy is None:
            records[record] = None
        if autonomy is not None and before is None:
            records[record] = str(given)
        if given != wanted or not tolerating:
            toleration.pop("tolerationSeconds", None)
            toleration.update({} if wanted is None else {"tolerationSeconds": wanted})
            tolerations += [] if tolerating else [toleration]
    patch: Json = {"metadata": {"resourceVersion": pod.version}}
    if records:
        patch["metadata"]["annotations"] = records
    if tolerations != list(pod.tolerations):
        patch["spec"] = {"tolerations": tolerations}
    return patch if len(patch) > 1 or records else {}


def _tolerates(toleration: Json, taint: str) -> bool:
    key, effect = text(toleration.get("key")), text(toleration.get("effect"))
    return key in ("", taint) and effect in ("", "NoExecute")


def _is_ours(toleration: Json, taint: str, record: str | None, default: int) -> bool:
    """Whether a toleration is the API server's default, or one that the manager made from it."""
    shape = {name: value for name, value in toleration.items() if name != "tolerationSeconds"}
    is_default = toleration.get("tolerationSeconds") == default or record is not None
    return is_default and shape == {"key": taint, "operator": "Exists", "effect": "NoExecute"}


def _recorded(record: str | None, default: int) -> int | None:
    if record == "infinite":  # as OpenYurt writes it
        return None
    is_number = record is not None and record.isdecimal() and len(record) <= LONGEST_RECORD
    return int(record) if record is not None and is_number else default


def _has_taint(node: Node, taint: str) -> bool:
    return any(
        found_taint.get("key") == taint and found_taint.get("effect") == "NoExecute"
        for found_taint in node.taints
    )


def keep_ready(body: bytes | bytearray, held: Container[str]) -> bytes:
    """Answer the admission review of a pod status that kube-controller-manager writes, by the rule of
    autonomy-endpoints.yaml, for an API server without admission policies.

    A pod that was ready on one of the `held` nodes keeps its conditions. ValueError for a review of anything but a pod.
    """
    request = read_request(body)
    pod = mapping(request.get("oldObject"))
    uid, kind = text(request.get("uid")), text(mapping(request.get("kind")).get("kind"))
    if not uid or kind != "Pod" or not pod:
        raise ValueError("not a request for a pod's status")
    conditions = objects(mapping(pod.get("status")).get("conditions"))
    was_ready = any(
        condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions
    )
    operations: list[Json] = []
    if was_ready and text(mapping(pod.get("spec")).get("nodeName")) in held:
        operations = [{"op": "replace", "path": "/status/conditions", "value": conditions}]
    try:
        return response(uid, operations)
    except orjson.JSONEncodeError as error:
        raise ValueError(f"the pod is not a valid object: {error}") from error


CONFIG_MAPS = ResourceType("", "v1", "configmaps")
CONFIG_MAP = "edgehub-manager-autonomy"
"""The parameter of the admission policy, of autonomy.yaml: the names of nodes whose pods stay ready."""
CONDITION = "Autonomy"
AUTONOMOUS, EXPIRED, INVALID = "NodeAutonomous", "AutonomyOver", "InvalidAutonomyDuration"
"""Reasons of the condition."""
EXPIRY_INTERVAL = 5.0
"""Seconds between checks for expired autonomies: the interval of the node lifecycle controller."""


class AutonomyController(Controller):
    """Maintains the tolerations of pods on autonomous nodes, and reports autonomy in the node's status. Key: a Node."""

    name = "autonomy"
    workers = 4
    debounce = 0.1

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._nodes = self.watch(NODES, own_key)
        self._pods = self.watch(PODS, self._node_of)
        held = one_object(
            CONFIG_MAPS, context.settings.namespace, CONFIG_MAP, lambda obj: texts(obj.get("data"))
        )
        self._configs = self.watch(held, _nodes_named)
        context.reviews[REVIEW_PATH] = lambda body: keep_ready(body, self._held())

    async def reconcile(self, key: Key) -> None:
        node = self._nodes.get(key) or Node(key[1])
        autonomy = read_autonomy(node.annotations)
        granted = None if autonomy is None or autonomy.error else autonomy
        refused = await self._set_tolerations(node, granted)
        is_over = granted is not None and granted.is_over(node.unheard_since, datetime.now(UTC))
        await self._hold(node, None if is_over else granted)
        if node.uid:
            await self._set_condition(node, autonomy, is_over)
        if refused is not None:
            raise refused

    async def _set_tolerations(self, node: Node, autonomy: Autonomy | None) -> StatusError | None:
        """Set the tolerations of the node's pods one by one; return the last error. A pod that cannot be patched delays
        no other pod."""
        refused, default = None, self._context.settings.default_toleration
        for _, pod in self._pods.by_index("node", node.name):
            patch = toleration_patch(pod, node, autonomy, default)
            if not patch:
                continue
            try:
                await self.patch(self._pods, (pod.namespace, pod.name), patch)
            except StatusError as error:
                refused = error if error.code != 404 else refused
        return refused

    async def _hold(self, node: Node, autonomy: Autonomy | None) -> None:
        """Add the node to the policy that keeps its pods ready, or remove it.

        kube-controller-manager first makes the pods of a silent node unready, as without autonomy: it does that only
        once, when the node becomes silent.
        """
        wanted = None if autonomy is None else str(autonomy)
        if self._held().get(node.name) == wanted:
            return
        if wanted is None and node.unheard_since:
            for _, pod in self._pods.by_index("node", node.name):
                if pod.ready:
                    await self._make_unready(pod)
        key = (self._context.settings.namespace, CONFIG_MAP)
        await self.patch(self._configs, key, {"data": {node.name: wanted}})

    def _held(self) -> dict[str, str]:
        """Return the data of the ConfigMap that names the nodes whose pods stay ready."""
        return self._configs.get((self._context.settings.namespace, CONFIG_MAP)) or {}

    async def _make_unready(self, pod: Pod) -> None:
        condition = {"type": "Ready", "status": "False", "lastTransitionTime": timestamp(datetime.now(UTC))}
        status: Json = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": pod.namespace, "name": pod.name, "resourceVersion": pod.version},
            "status": {"conditions": [condition]},
        }
        with unless_gone():
            await self._context.api.apply(PODS.type, status, "status")

    async def _set_condition(self, node: Node, autonomy: Autonomy | None, is_over: bool) -> None:
        wanted = _condition(autonomy, is_over)
        if node.autonomy == wanted or (
            wanted is None and node.autonomy[1] not in (AUTONOMOUS, EXPIRED, INVALID)
        ):
            return
        named = ("status", "reason", "message")
        conditions = []
        if wanted is not None:
            given = dict(zip(named, wanted, strict=True))
            conditions = [{"type": CONDITION, "lastTransitionTime": timestamp(datetime.now(UTC)), **given}]
        status: Json = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node.name, "uid": node.uid},
            "status": {"conditions": conditions},
        }
        await self.apply(self._nodes, status, "status")

    async def watch_the_clock(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_INTERVAL)
            now = datetime.now(UTC)
            for key, node in self._nodes.items():
                autonomy = read_autonomy(node.annotations) if node.unheard_since else None
                if (
                    autonomy is not None
                    and node.autonomy[1] == AUTONOMOUS
                    and autonomy.is_over(node.unheard_since, now)
                ):
                    self.queue.add(key)

    def _node_of(self, _key: Key, old: Pod | None, new: Pod | None) -> Iterable[Key]:
        """Return the key of a new or changed pod's node, if autonomy concerns the pod."""
        if new is None or old == new:
            return ()
        node = self._nodes.get(("", new.node))
        is_autonomous = node is not None and read_autonomy(node.annotations) is not None
        return (("", new.node),) if is_autonomous or new.records else ()


def _nodes_named(_key: Key, old: dict[str, str] | None, new: dict[str, str] | None) -> Iterable[Key]:
    """Return the keys of the nodes whose entry in the ConfigMap changed."""
    before, after = old or {}, new or {}
    return [("", name) for name in before.keys() | after.keys() if before.get(name) != after.get(name)]


def _condition(autonomy: Autonomy | None, is_over: bool) -> tuple[str, str, str] | None:
    """Return status, reason and message of the condition; None if the Node needs none."""
    if autonomy is None:
        return None
    if autonomy.error:
        return "False", INVALID, autonomy.error
    if is_over:
        return (
            "False",
            EXPIRED,
            f"the node has not renewed its Lease for longer than {autonomy}: its pods are evicted",
        )
    return "True", AUTONOMOUS, f"pods stay {autonomy} while the node does not renew its Lease"
