"""Asks the cloud whether the hub's own identity may make a write.

The cloud answers 403 for two reasons. Its authorizer refuses when the identity lacks the right, which new credentials
or a repaired role cure. An admission plugin refuses one write of an identity that has the right: a node that reports
on a foreign pod, an event in a namespace that is being deleted. A SelfSubjectAccessReview asks the authorizer alone.
"""

from __future__ import annotations

import orjson

from kube.http.client import Client, Unreachable
from kube.requests.request_info import parse_request

PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


async def is_allowed(client: Client, method: str, target: str) -> bool:
    """Whether the cloud's authorizer lets the client's identity make a request.

    StatusError where the cloud refuses to say (401 and 403 mean that it does not know the identity), Unreachable where
    it gives no answer that can be read.
    """
    info = parse_request(method, target)
    assert info.type is not None
    attributes = {
        "verb": info.verb,
        "group": info.type.group,
        "version": info.type.version,
        "resource": info.type.resource,
        "subresource": info.subresource,
        "namespace": info.namespace,
        "name": info.name,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = await client.request("POST", PATH, body=orjson.dumps(review))
    try:
        return orjson.loads(answer.body)["status"]["allowed"] is True
    except (ValueError, LookupError, TypeError) as error:
        raise Unreachable(f"POST {PATH}: the answer cannot be read: {error}") from error
