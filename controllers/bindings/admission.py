"""Parses AdmissionReviews of workloads, and answers them with the patch that injects their bindings. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

import orjson

from controllers.bindings.rendering.injection import Rendering
from controllers.bindings.workloads import WORKLOAD_TYPES, Workload, read_workload
from controllers.cluster.admission_reviews import read_request, response
from controllers.runtime.unstructured import mapping, text
from kube.json_type import Json, same_json

MOST_WARNINGS = 5
LONGEST_WARNING = 120
"""Characters of a warning. The API server truncates longer ones."""


@dataclass(frozen=True, slots=True)
class WorkloadReview:
    """A review of a workload: the object as its writer sends it, and the stored one, {} for a new workload."""

    uid: str
    writer: str
    """The name of the user who sent the request."""
    field_manager: str
    """The writer's field manager, which names the tool; "" if the request has none."""
    workload: Workload
    incoming: Json
    stored: Json


def read_review(body: bytes | bytearray) -> WorkloadReview:
    """Return the request of an AdmissionReview in JSON; ValueError if it has no request for a workload."""
    request = read_request(body)
    uid, obj = text(request.get("uid")), mapping(request.get("object"))
    kind = text(mapping(request.get("kind")).get("kind"))
    if not uid or kind not in WORKLOAD_TYPES or not obj:
        raise ValueError("not a request for a Deployment, StatefulSet or DaemonSet")
    incoming, stored = {**obj, "kind": kind}, mapping(request.get("oldObject"))
    try:
        orjson.dumps((incoming, stored))
    except orjson.JSONEncodeError as error:
        raise ValueError(f"the workload is not a valid object: {error}") from error
    workload = replace(read_workload(incoming), namespace=text(request.get("namespace")))
    writer = text(mapping(request.get("userInfo")).get("username"))
    field_manager = text(mapping(request.get("options")).get("fieldManager"))
    return WorkloadReview(
        uid, writer, field_manager, workload, incoming, {**stored, "kind": kind} if stored else {}
    )


def untouched(review: WorkloadReview) -> bytes:
    """Return an AdmissionReview, in JSON, that allows a workload unchanged."""
    return response(review.uid, [])


def review_response(review: WorkloadReview, rendering: Rendering) -> bytes:
    """Return the AdmissionReview with the response, in JSON. A workload is always allowed."""
    operations = json_diff(review.incoming, rendering.workload)
    warnings = [f"binding {skip.binding}: {skip}"[:LONGEST_WARNING] for skip in rendering.skipped]
    return response(review.uid, operations, warnings[:MOST_WARNINGS])


def json_diff(old: Json, new: Json) -> list[Json]:
    """Return the JSON patch (RFC 6902) that turns `old` into `new`."""
    operations: list[Json] = []
    _compare(old, new, "", operations)
    return operations


def _compare(old: object, new: object, path: str, operations: list[Json]) -> None:
    if same_json(old, new):
        return  # most of the object is unchanged, so paths are built only for changed parts
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old:
            if key not in new:
                operations.append({"op": "remove", "path": f"{path}/{_escaped(key)}"})
        for key, value in new.items():
            if key not in old:
                operations.append({"op": "add", "path": f"{path}/{_escaped(key)}", "value": value})
            else:
                _compare(old[key], value, f"{path}/{_escaped(key)}", operations)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            _compare(before, after, f"{path}/{index}", operations)
    else:
        operations.append({"op": "replace", "path": path, "value": new})


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
