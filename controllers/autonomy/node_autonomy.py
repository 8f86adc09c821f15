"""What the annotations of a Node say about its autonomy, how long its pods tolerate its absence, and which reviews keep
them ready. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import orjson

from controllers.cluster.admission_reviews import read_request, response
from controllers.cluster.nodes import Node
from controllers.cluster.pods import RECORDS, Pod
from controllers.runtime.unstructured import copied, mapping, objects, text
from kube.json_type import Json
from kube.requests.query import parse_duration

DURATION = "node.openyurt.io/autonomy-duration"
"""A duration as Go writes it; 0 or less is for ever."""
FOR_EVER = ("apps.openyurt.io/binding", "node.beta.openyurt.io/autonomy")
"""OpenYurt's older annotations: with the value "true" they are for ever, and count before `DURATION`."""
LONGEST_RECORD = 9
"""Digits of recorded seconds, 30 years: whoever may write a pod could write more than a number can hold."""
TAKEN_BACK = 0
"""The seconds that stand for no toleration: nobody can take one away from a pod."""
REVIEW_PATH = "/keep-pods-ready"


@dataclass(frozen=True, slots=True)
class Autonomy:
    """For how many seconds a node is autonomous, None for ever. `error` says why an annotation counts as none."""

    seconds: int | None = None
    error: str = ""

    def is_over(self, since: str, now: datetime) -> bool:
        """Whether a node that was last heard before `since` has been away for longer than this."""
        if self.seconds is None or not since:
            return False
        return now - datetime.fromisoformat(since) >= timedelta(seconds=self.seconds)

    def __str__(self) -> str:
        return "for ever" if self.seconds is None else f"{self.seconds} s"


def read_autonomy(annotations: Mapping[str, str]) -> Autonomy | None:
    """The autonomy that a Node's annotations ask for; None without any."""
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
    """The merge patch that has a pod tolerate its node's absence as long as `autonomy` says; {} if it does.

    `default` are the seconds of the API server's admission plugin DefaultTolerationSeconds.

    A pod's own tolerations are left alone, those of DaemonSets and static pods among them: only what the API server
    gave the pod is made longer, and what it had is recorded. Without autonomy the record is given back.

    The taint eviction controller schedules an eviction once, and makes it neither later nor earlier when the
    seconds change, but cancels it when the pod tolerates the taint for ever. So while the node has the taint, a pod
    tolerates it for ever first. The next reconcile writes the seconds.
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
        given = toleration.get("tolerationSeconds") if tolerating else TAKEN_BACK
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
    """Whether a toleration is the API server's default, or one that was made of it."""
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
    """The answer to a review of a status that kube-controller-manager writes, by the rule of autonomy-endpoints.yaml,
    for an API server without such policies.

    A pod that was ready on one of the `held` nodes keeps its conditions. ValueError for a review of anything but a pod.
    """
    request = read_request(body)
    pod = mapping(request.get("oldObject"))
    uid, kind = text(request.get("uid")), text(mapping(request.get("kind")).get("kind"))
    if not uid or kind != "Pod" or not pod:
        raise ValueError("no request for the status of a pod")
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
        raise ValueError(f"the pod is no object of Kubernetes: {error}") from error
