"""Answers creations while the cloud is away from the cloud's answer to an earlier one, or refuses them.

A service account's token is returned again to the same pod while it is valid. kubelet creates its Node and CSINode at
each start: the hub answers 409 if it knows that they exist. A mirror pod is echoed, because kubelet repeats it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime

from addons.offline.cached_response import CachedResponse
from addons.offline.cached_responses import CachedResponses
from addons.offline.offline_reads import OfflineReads
from addons.offline.offline_request import OfflineRequest
from addons.requests.answers import HEADERS, Answer
from addons.requests.caller import expiry_of
from addons.requests.cloud_identity import CloudIdentity
from addons.requests.offline_policy import is_registration, is_token_request
from kube.errors import StatusError, unavailable
from kube.requests.request_info import parse_request
from kube.wire.codec import codec_for
from kube.wire.encoded_objects import Encoded
from kube.wire.encoding import Encoding

MIN_VALIDITY = 10.0
"""Seconds that a token must still be valid when the hub answers with it."""
MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a mirror pod, which represents a static pod of kubelet in the cloud."""


class OfflineCreates:
    """Stores the cloud's answers to creations, and answers later ones."""

    def __init__(
        self,
        objects: OfflineReads,
        answers: CachedResponses,
        clock: Callable[[], float] = time.time,
        given: Callable[[str], None] = lambda _token: None,
    ) -> None:
        """`clock` returns wall time in seconds, by which tokens expire.

        `given` is called with each token with the cloud's audience that the cloud issues to kubelet.
        """
        self._objects = objects
        self._answers = answers
        self._clock = clock
        self._given = given

    def cache_created(
        self, identity: str, request: OfflineRequest, headers: Mapping[str, str], body: bytes
    ) -> None:
        """Store the cloud's answer: a created object is stored as the answer to a GET."""
        if is_token_request(request.info):
            # The request names its pod in its body, which the key covers.
            self._answers.cache_response(request.key(identity), headers, body)
            token = _token_in(CachedResponse.of(headers, body))
            if token and not identity and _is_for_the_cloud(request):
                self._given(token)
        elif is_registration(request.info) and (path := _created_path(request)):
            self._answers.cache_response(request.read_key(identity, path), headers, body)

    async def token(self, identity: str, request: OfflineRequest) -> Answer:
        """Return the last token that the cloud issued for the same request; StatusError 503 if it is no longer
        valid."""
        answer = await self._answers.get(request.key(identity))
        if answer is None or _expiry(answer) < self._clock() + MIN_VALIDITY:
            raise unavailable(
                "the cloud cannot be reached, and the hub has no valid token of this service account"
            )
        return Answer(answer.body, {**answer.headers, **HEADERS}, 201)

    async def refusal(self, identity: CloudIdentity, request: OfflineRequest) -> StatusError:
        """Return 409 if the hub has a copy of the object, which kubelet then reads; 503 otherwise."""
        assert request.info.type is not None
        resource = request.info.type.group_resource
        if path := _created_path(request):
            read = parse_request("GET", path)
            key = request.read_key(identity.user, path)
            if await self._answers.in_all_forms(key) or await self._objects.find(identity, read):
                return StatusError(409, "AlreadyExists", f'{resource} "{read.name}" already exists')
        return unavailable(f"the cloud cannot be reached, and only it creates {resource}")


def mirrored(request: OfflineRequest) -> Answer:
    """Return the echo of a mirror pod; StatusError 503 for any other pod."""
    codec, obj = request.named("Pod")
    if MIRROR not in obj.annotations:
        raise unavailable("the cloud cannot be reached, and only it creates pods")
    return request.answered(Encoded.of(codec, obj), 201)


def _created_path(request: OfflineRequest) -> str:
    """Return the path of the object in the body; "" if there is none."""
    assert request.info.type is not None
    try:
        codec = codec_for(Encoding(request.content_type))
        name = codec.peek(codec.decode_single(request.body)[2]).name
    except ValueError:
        return ""
    return request.info.type.path(request.info.namespace, name) if name else ""


def _is_for_the_cloud(request: OfflineRequest) -> bool:
    """Whether a token request names no audience: then the token is for kube-apiserver."""
    try:
        _, obj = request.decoded("TokenRequest")
        return not obj.fields.child("spec").texts("audiences")
    except (StatusError, ValueError):
        return False


def _token_in(answer: CachedResponse) -> str:
    """Return the token in an answer; "" if it is unreadable."""
    try:
        return answer.single().decode().fields.child("status").text("token")
    except ValueError:
        return ""


def _expiry(answer: CachedResponse) -> float:
    """Return when the token in an answer expires, in Unix seconds; 0 if the answer is unreadable.

    The time comes from the token itself. The status has the time at which kubelet should request the next one:
    kube-apiserver lets such a token live for a year.
    """
    try:
        document = answer.single()
        status = document.decode().fields.child("status")
        expiry = expiry_of(f"Bearer {status.text('token')}")
        if expiry is not None:
            return expiry
        if document.codec.encoding is Encoding.PROTOBUF:
            return float(status.child("expirationTimestamp").number("seconds"))
        return datetime.fromisoformat(status.text("expirationTimestamp")).timestamp()
    except ValueError:
        return 0.0
