"""Answers AdmissionReviews of workloads with the patch that injects their bindings. Pure; the caller renders."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace

import orjson

from controllers.bindings.json_diffs import json_diff
from controllers.bindings.rendering.injection import Rendering
from controllers.bindings.workloads import WORKLOAD_TYPES, Workload, read_workload
from controllers.runtime.unstructured import mapping, text
from kube.json_type import Json

MOST_WARNINGS = 5
LONGEST_WARNING = 120
"""Characters. The API server cuts longer warnings, and more of them."""

type Render = Callable[[Workload, Json, Json], Rendering]
"""Of a workload's facts, the incoming object, and the stored one with the record."""


def review_response(review: Json, render: Render) -> Json:
    """The AdmissionReview with the response; ValueError for a review that has no request for a workload.

    A workload is always allowed. Its record is the stored object's: anybody may have written the incoming one.
    """
    request = mapping(review.get("request"))
    uid, obj = text(request.get("uid")), mapping(request.get("object"))
    kind = text(mapping(request.get("kind")).get("kind"))
    if not uid or kind not in WORKLOAD_TYPES or not obj:
        raise ValueError("no request for a Deployment or StatefulSet")
    incoming, stored = {**obj, "kind": kind}, mapping(request.get("oldObject"))
    workload = replace(read_workload(incoming), namespace=text(request.get("namespace")))
    rendering = render(workload, incoming, {**stored, "kind": kind} if stored else {})
    response: Json = {"uid": uid, "allowed": True}
    if operations := json_diff(incoming, rendering.workload):
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(operations)).decode()
    warnings = [f"binding {each.binding}: {each}"[:LONGEST_WARNING] for each in rendering.skipped]
    if warnings:
        response["warnings"] = warnings[:MOST_WARNINGS]
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
