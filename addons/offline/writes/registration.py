"""What kubelet creates when it starts, its Node and its CSINode: known from then on, and not created twice."""

from __future__ import annotations

from collections.abc import Mapping

from addons.offline.cached_responses import CachedResponses, answer_name
from addons.offline.offline_reads import OfflineReads
from addons.offline.offline_request import OfflineRequest
from kube.errors import StatusError, unavailable
from kube.requests.request_info import parse_request
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding


class Registration:
    """Copies what was created as if it had been read, and says without the cloud that it is there."""

    def __init__(self, objects: OfflineReads, answers: CachedResponses) -> None:
        self._objects = objects
        self._answers = answers

    def keep(self, identity: str, asked: OfflineRequest, headers: Mapping[str, str], body: bytes) -> None:
        """Copy the answer to a creation."""
        name = _created(asked)
        if name:
            self._answers.keep(_copy_name(identity, asked, name), headers, body)

    async def refuse(self, identity: str, asked: OfflineRequest) -> StatusError:
        """409 where the object is known to be there, after which kubelet reads it; 503 otherwise."""
        info, name = asked.info, _created(asked)
        assert info.type is not None
        if name:
            read = parse_request("GET", info.type.path(info.namespace, name))
            kept = await self._answers.get(_copy_name(identity, asked, name))
            if kept is not None or await self._objects.find(identity, read):
                message = f'{info.type.group_resource} "{name}" already exists'
                return StatusError(409, "AlreadyExists", message)
        return unavailable(f"the cloud cannot be reached, and only it creates {info.type.group_resource}")


def _created(asked: OfflineRequest) -> str:
    """The name of the object in the body; "" where there is none."""
    try:
        codec = codec_for(Encoding(asked.content_type))
        return codec.peek(codec.decode_single(asked.body)[2]).name
    except ValueError:
        return ""


def _copy_name(identity: str, asked: OfflineRequest, name: str) -> str:
    """Of the answer to a GET of the object by the same client."""
    assert asked.info.type is not None
    path = asked.info.type.path(asked.info.namespace, name)
    return answer_name(identity, path, asked.accept or "", asked.accept_encoding)
