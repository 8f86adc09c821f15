"""Accepts events while the cloud is away: the journal keeps each request, and the client gets its event back."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from addons.offline.offline_request import OfflineRequest
from addons.offline.writes.journal import Journal
from addons.views.responses import HEADERS, object_response
from kube.errors import entity_too_large, not_acceptable
from kube.objects.object_patches import apply_patch
from kube.wire.api_objects import decode_object
from kube.wire.codec import codec_for
from kube.wire.encoded_objects import Encoded
from kube.wire.encoding import Encoding

MAX_EVENT = 64 * 1024
"""Bytes of one event. events.k8s.io allows a note of 1 KB, so a real event is far smaller."""
KIND = "Event"


async def accept_event(request: OfflineRequest, journal: Journal) -> web.Response:
    """Journal a POST and answer 201 with its event. StatusError where the body is no event."""
    codec, obj = request.named(KIND)
    request.check_accepted(codec)
    event = Encoded.of(codec, obj)
    body = event.body()
    _check_size(body)
    await journal.wait_written(journal.put_event("POST", request.target, codec.content_type, body))
    return object_response(event, 201)


async def accept_event_patch(request: OfflineRequest, journal: Journal) -> web.Response:
    """Journal a PATCH and answer 200.

    The hub keeps no events, so the answer holds the event's name and the fields that the patch sets.
    """
    info = request.info
    assert info.type is not None
    _check_size(request.body)
    metadata = {"name": info.name, "namespace": info.namespace}
    base: dict[str, Any] = {"apiVersion": info.type.api_version, "kind": KIND, "metadata": metadata}
    document = apply_patch(request.content_type, base, request.body, KIND)
    encodings = request.encodings()
    if not encodings:
        raise not_acceptable("an event is written as JSON or protobuf")
    await journal.wait_written(journal.put_event("PATCH", request.target, request.content_type, request.body))
    if Encoding.JSON in encodings:
        return web.json_response(document, headers=HEADERS)
    codec = codec_for(Encoding.PROTOBUF)
    obj = decode_object(codec.encoding, info.type.api_version, KIND, b"")
    for name, value in metadata.items():
        obj.fields.child("metadata").set(name, value)
    return request.echo(codec, obj, 200)


def _check_size(body: bytes) -> None:
    if len(body) > MAX_EVENT:
        raise entity_too_large(
            f"the cloud cannot be reached, and the hub journals events of at most {MAX_EVENT} bytes"
        )
