"""Asks the API server for a client's own user, by a SelfSubjectReview, and for the user's rights, by a
SelfSubjectAccessReview."""

from __future__ import annotations

import orjson

from kube.http.client import RESPONSE_TIMEOUT, Client
from kube.json_type import Json
from kube.requests.request_info import RequestInfo, ResourceType

type Right = tuple[str, ...]
"""ATTRIBUTES of a resource, or a verb and a path."""

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
    """The right to a verb of a resource; of one object where it has a name."""
    return verb, type_.group, type_.version, type_.resource, subresource, namespace, name


def spec_of(right: Right) -> Json:
    """The spec of a review that asks for a right."""
    if len(right) == 2:
        return {"nonResourceAttributes": dict(zip(("verb", "path"), right, strict=True))}
    return {"resourceAttributes": dict(zip(ATTRIBUTES, right, strict=True))}


async def is_allowed(client: Client, spec: Json, *, timeout: float = RESPONSE_TIMEOUT) -> bool:
    """Whether the client's user has the right of a spec.

    Admission plugins are not asked: they may refuse one write of a user who has the right. `timeout` is in seconds.
    StatusError where the server refuses the review (401 and 403: it does not know the user), Unreachable where it gives
    no readable answer.
    """
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
    answer = await client.request("POST", PATH, body=orjson.dumps(review), timeout=timeout)
    return answer.found(lambda review: review["status"]["allowed"] is True)


async def user_name(client: Client) -> str:
    """The name of the client's user, as admission webhooks see it; StatusError and Unreachable as `is_allowed`."""
    answer = await client.request("POST", USER_PATH, body=USER_REVIEW)
    return answer.found(lambda review: str(review["status"]["userInfo"]["username"]))
