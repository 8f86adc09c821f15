"""What the cloud says of the user who the hub is towards kubelet, kept for kubelet's own questions in an outage.

kubelet takes a client certificate of the cluster's CA as it is, and asks the cloud, through this hub, what its user may
do (SubjectAccessReview). It remembers a yes for some minutes, and answers 500 where nobody says. No other user's review
is answered without the cloud.
"""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from addons.link.identities.kubelet import KubeletAccess
from addons.offline.cached_response import unpacked
from addons.offline.cached_responses import CachedResponses
from addons.offline.offline_request import OfflineRequest
from addons.offline.people.kept_discovery import Question
from addons.requests.answers import HEADERS, Answer
from kube.errors import unavailable
from kube.json_type import Json
from kube.schemas.json_objects import json_object
from kube.wire.encoding import Encoding
from kube.wire.json_fields import parse_object

PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
TYPE = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
JSON = "application/json"
VERBS = ("get", "create")
"""kubelet asks for the verb of the method, on nodes/proxy: GET for logs and a WebSocket, POST for SPDY."""


class KubeletReviews:
    """Names what to keep, and answers from it."""

    def __init__(self, node: str, access: KubeletAccess, answers: CachedResponses) -> None:
        self._node = node
        self._access = access
        self._answers = answers

    def questions(self) -> Iterator[Question]:
        """What to ask the cloud; nothing where the certificate cannot be read."""
        try:
            user, groups = self._access.user()
        except (OSError, ValueError):
            return
        for verb in VERBS:
            yield _question(
                user, groups, {"verb": verb, "resource": "nodes", "subresource": "proxy", "name": self._node}
            )

    async def answer(self, request: OfflineRequest) -> Answer:
        """The cloud's last answer to this question; StatusError 503 where it was never asked."""
        review = _parsed(request)
        spec = review.get("spec") or {}
        attributes = spec.get("resourceAttributes") or {}
        # RBAC looks at no version, and the questions of the hub name none.
        attributes = {name: text for name, text in attributes.items() if text and name != "version"}
        question = _question(spec.get("user", ""), spec.get("groups") or [], attributes)
        answer = await self._answers.get(question.key)
        if answer is None:
            raise unavailable(
                "the cloud cannot be reached, and it alone says what others than the hub may do here"
            )
        status = orjson.loads(unpacked(answer.headers, answer.body)).get("status", {})
        return Answer(orjson.dumps({**review, "status": status}), {**HEADERS, "Content-Type": JSON}, 201)


def _question(user: str, groups: list[str], attributes: Json) -> Question:
    spec = {"user": user, "groups": sorted(set(groups)), "resourceAttributes": attributes}
    return Question("POST", PATH, JSON, orjson.dumps({**TYPE, "spec": spec}, option=orjson.OPT_SORT_KEYS))


def _parsed(request: OfflineRequest) -> Json:
    """StatusError 400 or 415 where the body is no review."""
    codec, obj = request.decoded(TYPE["kind"])
    if codec.encoding is Encoding.JSON:
        return parse_object(obj.encode())
    return json_object(TYPE["apiVersion"], TYPE["kind"], obj.encode())
