"""AdmissionReviews as the API server sends them to webhooks, and the responses, which always allow. Pure."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import orjson

from controllers.runtime.unstructured import mapping
from kube.json_type import Json

MAX_VALUES = 500_000
"""JSON values in a review. The API server accepts objects of 3 MiB, whose values have more than six bytes on average;
parsed, the shortest values take 70 bytes each."""


class TooManyValues(ValueError):
    """A review has more than MAX_VALUES values."""


def read_request(body: bytes | bytearray) -> Json:
    """Parse the request of a review; {} if it has none; ValueError for malformed JSON."""
    if sum(map(body.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise TooManyValues(f"the review has more than {MAX_VALUES} values")
    return mapping(mapping(orjson.loads(body)).get("request"))


def response(uid: str, operations: Sequence[Json], warnings: Sequence[str] = ()) -> bytes:
    """Return the review whose response allows the request, with these JSON Patch operations."""
    answer: Json = {"uid": uid, "allowed": True}
    if operations:
        answer["patchType"] = "JSONPatch"
        answer["patch"] = base64.b64encode(orjson.dumps(operations)).decode()
    if warnings:
        answer["warnings"] = list(warnings)
    return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer})
