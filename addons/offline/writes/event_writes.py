"""Events while the cloud is gone: taken, kept in the journal, answered as they came."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from addons.offline.offline_request import HEADERS, OfflineRequest, response
from addons.offline.writes.journal import Journal
from kube.errors import entity_too_large, not_acceptable
from kube.objects.patches import apply_patch
from kube.wire.api_objects import decode_object
from kube.wire.codec import codec_for
from kube.wire.encoded_objects import Encoded
from kube.wire.encoding import Encoding

MAX_EVENT = 64 * 1024
"""Bytes of an event: with the journal's bound on their number this bounds its memory."""
KIND = "Event"


async def take_event(asked: OfflineRequest, journal: Journal) -> web.Response:
    """The answer to a POST; StatusError for what is no event."""
    codec, obj = asked.named(KIND)
    asked.check_taken(codec)
    event = Encoded.of(codec, obj)
    body = event.body()
    _check_size(body)
    await journal.written(journal.put_event("POST", asked.target, codec.content_type, body))
    return response(event, 201)


async def take_event_patch(asked: OfflineRequest, journal: Journal) -> web.Response:
    """The answer to a PATCH: the event's name and what the patch says of it, as the event itself is not kept."""
    info = asked.info
    assert info.type is not None
    _check_size(asked.body)
    metadata = {"name": info.name, "namespace": info.namespace}
    base: dict[str, Any] = {"apiVersion": info.type.api_version, "kind": KIND, "metadata": metadata}
    document = apply_patch(asked.content_type, base, asked.body, KIND)
    encodings = asked.encodings()
    if not encodings:
        raise not_acceptable("an event comes as JSON or protobuf")
    await journal.written(journal.put_event("PATCH", asked.target, asked.content_type, asked.body))
    if Encoding.JSON in encodings:
        return web.json_response(document, headers=HEADERS)
    codec = codec_for(Encoding.PROTOBUF)
    obj = decode_object(codec.encoding, info.type.api_version, KIND, b"")
    for name, value in metadata.items():
        obj.fields.child("metadata").set(name, value)
    return asked.echo(codec, obj, 200)


def _check_size(body: bytes) -> None:
    if len(body) > MAX_EVENT:
        raise entity_too_large(
            f"the cloud cannot be reached, and an event that waits has {MAX_EVENT} bytes at most"
        )
