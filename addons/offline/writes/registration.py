"""Kubelet's Node and CSINode, which it creates at each start: the hub answers 409 when it knows that they exist."""

from __future__ import annotations

from collections.abc import Mapping

from addons.offline.cached_response import ResponseKey, response_key
from addons.offline.cached_responses import CachedResponses
from addons.offline.offline_reads import OfflineReads
from addons.offline.offline_request import OfflineRequest
from addons.requests.cloud_identity import CloudIdentity
from kube.errors import StatusError, unavailable
from kube.requests.request_info import parse_request
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding


class Registration:
    """Keeps the cloud's answer to a creation as if it were the answer to a GET, and answers later creations from it."""

    def __init__(self, objects: OfflineReads, answers: CachedResponses) -> None:
        self._objects = objects
        self._answers = answers

    def keep(self, identity: str, request: OfflineRequest, headers: Mapping[str, str], body: bytes) -> None:
        """Keep the answer to a creation."""
        name = _created(request)
        if name:
            self._answers.keep(_key(identity, request, name), headers, body)

    async def refuse(self, identity: CloudIdentity, request: OfflineRequest) -> StatusError:
        """409 where the hub has a copy of the object, after which kubelet reads the object; 503 otherwise."""
        info, name = request.info, _created(request)
        assert info.type is not None
        if name:
            read = parse_request("GET", info.type.path(info.namespace, name))
            answer = await self._answers.get(_key(identity.user, request, name))
            if answer is not None or await self._objects.find(identity, read):
                message = f'{info.type.group_resource} "{name}" already exists'
                return StatusError(409, "AlreadyExists", message)
        return unavailable(f"the cloud cannot be reached, and only it creates {info.type.group_resource}")


def _created(request: OfflineRequest) -> str:
    """The name of the object in the body; "" where there is none."""
    try:
        codec = codec_for(Encoding(request.content_type))
        return codec.peek(codec.decode_single(request.body)[2]).name
    except ValueError:
        return ""


def _key(identity: str, request: OfflineRequest, name: str) -> ResponseKey:
    """The key of the answer to the same client's GET of the object."""
    assert request.info.type is not None
    path = request.info.type.path(request.info.namespace, name)
    return response_key(identity, path, request.accept or "", request.accept_encoding)
