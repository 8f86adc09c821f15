"""Accepts events while the cloud is away: journals each request, and returns the event to the client."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

from addons.offline.offline_request import OfflineRequest
from addons.offline.writes.journal import Journal
from addons.offline.writes.journal_entries import path_of_event
from addons.requests.answers import Answer
from kube.bounds import reached
from kube.errors import entity_too_large
from kube.objects.object_patches import apply_patch
from kube.wire.codec import codec_for
from kube.wire.encoded_objects import Encoded
from kube.wire.encoding import Encoding
from kube.wire.json_fields import write_json

MAX_EVENT = 64 * 1024
"""Bytes of one event. events.k8s.io allows a note of 1 KB, so a real event is far smaller."""
MAX_CREATION_BYTES = 1024 * 1024
"""Bytes of stored creations: some hundred real events."""
KIND = "Event"


class EventWrites:
    """Journals clients' writes of events, and stores the latest creations.

    A cluster drops an event after an hour. A patch of an expired one would be lost although its client has the answer
    200, so the event's creation is sent before it: the cloud answers 409 where it still has the event.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._created: OrderedDict[str, OfflineRequest] = OrderedDict()
        """Creations by the path of the event, the latest last."""
        self._bytes = 0

    def cache_event(self, request: OfflineRequest) -> None:
        """Store a creation that the cloud accepted, so that later patches can follow it."""
        path = path_of_event("POST", request.target, request.content_type, request.body)
        if not path or len(request.body) > MAX_EVENT:
            return
        self._drop(path)
        self._created[path] = request
        self._bytes += len(request.body)
        while self._bytes > MAX_CREATION_BYTES:
            self._drop(next(iter(self._created)))
            reached("kept events")

    async def create(self, request: OfflineRequest, user: str = "") -> Answer:
        """Journal a POST and answer 201 with its event; StatusError if the body is no event.

        `user` is the caller, if it has a token of its own, or "" for the node.
        """
        codec, obj = request.named(KIND)
        event = Encoded.of(codec, obj)
        answer = request.answered(event, 201)
        body = event.body()
        _check_size(body)
        entry = self._journal.put_event("POST", request.target, codec.content_type, body, user)
        if not user:
            self.cache_event(request._replace(content_type=codec.content_type, body=body))
        await self._journal.wait_written(entry)
        return answer

    async def patch(self, request: OfflineRequest, user: str = "") -> Answer:
        """Journal a PATCH of `user`, as in `create`, and answer 200.

        The answer holds the event's name and the fields that the patch sets.
        """
        info = request.info
        assert info.type is not None
        _check_size(request.body)
        metadata = {"name": info.name, "namespace": info.namespace}
        base: dict[str, Any] = {"apiVersion": info.type.api_version, "kind": KIND, "metadata": metadata}
        # In a thread, because a JSON patch of 2 KB may copy its own result up to 3 MiB.
        document = await asyncio.to_thread(apply_patch, request.content_type, base, request.body, KIND)
        patched = Encoded(codec_for(Encoding.JSON), info.type.api_version, KIND, write_json(document))
        answer = request.answered(patched)
        created = self._created.get(request.object_path) if not user else None
        if created is not None and not self._journal.events_of(request.object_path):
            self._journal.put_event("POST", created.target, created.content_type, created.body)
        entry = self._journal.put_event("PATCH", request.target, request.content_type, request.body, user)
        await self._journal.wait_written(entry)
        return answer

    def _drop(self, path: str) -> None:
        if (dropped := self._created.pop(path, None)) is not None:
            self._bytes -= len(dropped.body)


def _check_size(body: bytes) -> None:
    if len(body) > MAX_EVENT:
        raise entity_too_large(
            f"the cloud cannot be reached, and the hub journals events of at most {MAX_EVENT} bytes"
        )
