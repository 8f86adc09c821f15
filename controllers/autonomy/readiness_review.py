"""Answers reviews of pods' statuses by the rule of autonomy-endpoints.yaml, where there are no such policies. Pure."""

from __future__ import annotations

from collections.abc import Container

import orjson

from controllers.cluster.admission_reviews import read_request, response
from controllers.runtime.unstructured import mapping, objects, text
from kube.json_type import Json

PATH = "/keep-pods-ready"


def keep_ready(body: bytes | bytearray, held: Container[str]) -> bytes:
    """The answer to a review of a status that kube-controller-manager writes.

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
