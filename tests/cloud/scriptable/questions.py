"""Creates that store nothing and are answered from a table: reviews of the caller, access reviews, and token
requests."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta

from kube.errors import StatusError
from kube.json_type import Json
from kube.requests.request_info import ListOptions, RequestInfo, ResourceType
from tests.cloud.scriptable.access import Access, User
from tests.cloud.scriptable.admission import now
from tests.cloud.scriptable.resources import Resource

TOKEN_SECONDS = 3600
"""The validity in seconds of a token whose request does not specify it."""
AUDIENCE = "https://kubernetes.default.svc"


def answer_question(access: Access, user: User, resource: Resource, question: Json) -> Json:
    """Return the request object with its status filled in."""
    match resource.kind:
        case "SelfSubjectReview":
            info = {"username": user.name, "groups": list(user.groups)}
            return question | {"metadata": {"creationTimestamp": now()}, "status": {"userInfo": info}}
        case "SelfSubjectAccessReview":
            allowed = access.may(user, _asked(question.get("spec") or {}))
            return question | {"status": {"allowed": allowed}}
        case _:
            raise StatusError(500, "", f"nobody answers {resource.kind}")


def issue_token(access: Access, account: Json, request: Json) -> Json:
    """Answer a TokenRequest with a new token, which `access` accepts from now on for the service account."""
    metadata = account["metadata"]
    namespace = metadata["namespace"]
    token = secrets.token_urlsafe(24)
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    access.tokens[token] = User(f"system:serviceaccount:{namespace}:{metadata['name']}", groups)
    spec = {"audiences": [AUDIENCE], "expirationSeconds": TOKEN_SECONDS} | (request.get("spec") or {})
    expires = datetime.now(UTC) + timedelta(seconds=spec["expirationSeconds"])
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": metadata["name"], "namespace": namespace, "creationTimestamp": now()},
        "spec": spec,
        "status": {"token": token, "expirationTimestamp": expires.strftime("%Y-%m-%dT%H:%M:%SZ")},
    }


def _asked(spec: Json) -> RequestInfo:
    """Return the request that an access review asks about."""
    attributes: Json | None = spec.get("resourceAttributes")
    non_resource: Json | None = spec.get("nonResourceAttributes")
    if non_resource is not None and attributes is None:
        return _info(non_resource.get("verb", "get"), non_resource.get("path", "/"), None, {})
    attributes = attributes or {}
    resource = ResourceType(
        attributes.get("group", ""), attributes.get("version", "v1"), attributes.get("resource", "")
    )
    path = resource.path(attributes.get("namespace", ""), attributes.get("name", ""))
    return _info(attributes.get("verb", ""), path, resource, attributes)


def _info(verb: str, path: str, resource: ResourceType | None, attributes: Json) -> RequestInfo:
    return RequestInfo(
        method="GET",
        path=path,
        verb=verb,
        type=resource,
        subresource=attributes.get("subresource", ""),
        namespace=attributes.get("namespace", ""),
        name=attributes.get("name", ""),
        options=ListOptions(),
        timeout=None,
    )
