"""Asks the API server who a client's user is (SelfSubjectReview), and what the user may do
(SelfSubjectAccessReview)."""

from __future__ import annotations

import orjson

from kube.http.client import RESPONSE_TIMEOUT, Client
from kube.json_type import Json
from kube.requests.request_info import RequestInfo, ResourceType

type Right = tuple[str, ...]
"""The ATTRIBUTES of a resource, or a verb and a path."""

ATTRIBUTES = ("verb", "group", "version", "resource", "subresource", "namespace", "name")
PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
USER_PATH = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
USER_REVIEW = orjson.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})


def right_to(info: RequestInfo) -> Right:
    """The right that a request needs."""
    if info.type is None:
        return info.verb, info.path
    return right_of(info.type, info.verb, info.subresource, info.namespace, info.name)


def right_of(type_: ResourceType, verb: str, subresource: str, namespace: str, name: str) -> Right:
    """The right to use a verb on a resource; on one object if `name` is not empty."""
    return verb, type_.group, type_.version, type_.resource, subresource, namespace, name


def spec_of(right: Right) -> Json:
    """The spec of a SelfSubjectAccessReview for a right."""
    if len(right) == 2:
        return {"nonResourceAttributes": dict(zip(("verb", "path"), right, strict=True))}
    return {"resourceAttributes": dict(zip(ATTRIBUTES, right, strict=True))}


async def is_allowed(client: Client, spec: Json, *, timeout: float = RESPONSE_TIMEOUT) -> bool:
    """True if the client's user has the right of a spec.

    Admission plugins take no part: they may still refuse a write of a user who has the right. `timeout` is in seconds.
    StatusError if the server refuses the review (401 and 403: the user is unknown), Unreachable if there is no
    readable answer.
    """
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
    answer = await client.request("POST", PATH, body=orjson.dumps(review), timeout=timeout)
    return answer.found(lambda review: review["status"]["allowed"] is True)


async def user_name(client: Client) -> str:
    """The name of the client's user, as admission webhooks see it. Raises as `is_allowed`."""
    answer = await client.request("POST", USER_PATH, body=USER_REVIEW)
    return answer.found(lambda review: str(review["status"]["userInfo"]["username"]))
