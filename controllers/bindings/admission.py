"""Reads AdmissionReviews of workloads, and answers them with the patch that injects their bindings. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

import orjson

from controllers.bindings.json_diffs import json_diff
from controllers.bindings.rendering.injection import Rendering
from controllers.bindings.workloads import WORKLOAD_TYPES, Workload, read_workload
from controllers.cluster.admission_reviews import read_request, response
from controllers.runtime.unstructured import mapping, text
from kube.json_type import Json

MOST_WARNINGS = 5
LONGEST_WARNING = 120
"""Characters. The API server cuts longer warnings, and more of them."""


@dataclass(frozen=True, slots=True)
class WorkloadReview:
    """A request about a workload: the object as its writer sends it, and the stored one, {} for a new workload."""

    uid: str
    workload: Workload
    incoming: Json
    stored: Json


def read_review(body: bytes | bytearray) -> WorkloadReview:
    """The request of an AdmissionReview in JSON; ValueError for one that has no request for a workload."""
    request = read_request(body)
    uid, obj = text(request.get("uid")), mapping(request.get("object"))
    kind = text(mapping(request.get("kind")).get("kind"))
    if not uid or kind not in WORKLOAD_TYPES or not obj:
        raise ValueError("no request for a Deployment, StatefulSet or DaemonSet")
    incoming, stored = {**obj, "kind": kind}, mapping(request.get("oldObject"))
    try:
        orjson.dumps((incoming, stored))
    except orjson.JSONEncodeError as error:
        raise ValueError(f"the workload is no object of Kubernetes: {error}") from error
    workload = replace(read_workload(incoming), namespace=text(request.get("namespace")))
    return WorkloadReview(uid, workload, incoming, {**stored, "kind": kind} if stored else {})


def review_response(review: WorkloadReview, rendering: Rendering) -> bytes:
    """The AdmissionReview with the response, in JSON. A workload is always allowed."""
    operations = json_diff(review.incoming, rendering.workload)
    warnings = [f"binding {skip.binding}: {skip}"[:LONGEST_WARNING] for skip in rendering.skipped]
    return response(review.uid, operations, warnings[:MOST_WARNINGS])
