"""AdmissionReviews, as the API server sends them to webhooks, and their answers, which allow everything. Pure."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import orjson

from controllers.runtime.unstructured import mapping
from kube.json_type import Json

MAX_VALUES = 500_000
"""Values in a review's JSON. The API server takes objects of 3 MiB, in which they are longer than six bytes on average;
parsed, the shortest ones take 70 bytes each."""


class TooManyValues(ValueError):
    """A review has more than MAX_VALUES."""


def read_request(body: bytes | bytearray) -> Json:
    """The request of a review in JSON, {} if it has none; ValueError for malformed JSON."""
    if sum(map(body.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise TooManyValues(f"the review has more than {MAX_VALUES} values")
    return mapping(mapping(orjson.loads(body)).get("request"))


def response(uid: str, operations: Sequence[Json], warnings: Sequence[str] = ()) -> bytes:
    """The review that allows a request, and has its object changed by these operations of a JSON Patch."""
    answer: Json = {"uid": uid, "allowed": True}
    if operations:
        answer["patchType"] = "JSONPatch"
        answer["patch"] = base64.b64encode(orjson.dumps(operations)).decode()
    if warnings:
        answer["warnings"] = list(warnings)
    return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer})
