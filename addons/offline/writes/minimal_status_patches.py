"""Patches this node's status with an answer of metadata only, and takes the object from the watch event of the same
patch.

kubelet writes a status every five minutes at least, and reads the node in the answer. Its watch of the node receives
the same object over the same link.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from urllib.parse import parse_qs

from multidict import CIMultiDict

from addons.offline.offline_request import OfflineRequest
from addons.requests.offline_policy import is_status_write
from addons.rules.shared_kinds import NODES
from addons.views.source import Source
from kube.errors import StatusError
from kube.http.client import Client, RawResponse, Unreachable
from kube.objects.object_patches import MERGE_PATCH, STRATEGIC_MERGE_PATCH
from kube.objects.status_update import updated
from kube.reflector.state import State
from kube.requests.request_info import RequestInfo
from kube.store.store import Item, Store
from kube.wire.encoded_objects import Encoded

EVENT_WAIT = 1.0
"""Seconds to wait for the event. The cloud sends it together with the metadata, over the same link."""
IN_LOOP_LIMIT = 64 * 1024
"""Maximum bytes of a node, and of a patch, that are compared in the event loop: that takes some milliseconds."""
BODY_HEADERS = frozenset({"content-type", "content-length", "content-encoding"})

logger = logging.getLogger(__name__)


class MinimalStatusPatches:
    """Sends such a patch, and finds the answer's object in the node's own copy."""

    def __init__(self, node: str, sources: Iterable[Source]) -> None:
        self._key = "", node
        self._sources = sources

    def takes(self, info: RequestInfo) -> bool:
        """Whether a write is a patch of this node's status, and a copy will get its event."""
        is_own = info.type == NODES and ("", info.name) == self._key
        return is_own and info.verb == "patch" and is_status_write(info) and any(self._copies())

    async def relay(
        self, client: Client, request: OfflineRequest, headers: list[tuple[str, str]]
    ) -> RawResponse:
        """Return the cloud's answer to such a write, with the object from the copy; Unreachable as in
        `Client.relay`."""
        send = partial(client.relay, "PATCH", request.target, body=request.body)
        store = self._copy_for(request)
        if store is None:
            return await send(headers=headers)
        held = store.get(self._key)
        before = held.version if held is not None else 0
        answer = await send(headers=[*headers, ("Prefer", "return=minimal")])
        if answer.status != 200 or answer.body:
            return answer  # over HTTP/1.1 the object comes
        written = await self._written(store, before, request)
        if written is None:
            logger.info("reading the node's status again: no event delivered it")
            read = [(name, value) for name, value in headers if name.lower() not in BODY_HEADERS]
            answer = await client.relay("GET", request.object_path, headers=read, body=b"")
            if answer.status != 200:
                raise Unreachable(f"the object that was written cannot be read: {answer.status}")
            return answer
        retained = [
            (name, value) for name, value in answer.headers.items() if name.lower() not in BODY_HEADERS
        ]
        obj = Encoded(store.codec, store.api_version, store.kind, written.raw)
        return RawResponse(
            200, CIMultiDict([*retained, ("Content-Type", obj.codec.content_type)]), obj.body()
        )

    def _copies(self) -> Iterable[Store]:
        """Return the small stores that apply the node's events at once."""
        for source in self._sources:
            wanted, store = source.list_watch, source.store
            is_full_object = not source.user and wanted.type == NODES and not wanted.metadata_only
            follows = source.reflector.state is State.WATCHING and store.may_be_shown
            if (
                is_full_object
                and follows
                and (item := store.get(self._key))
                and len(item.stored) <= IN_LOOP_LIMIT
            ):
                yield store

    def _copy_for(self, request: OfflineRequest) -> Store | None:
        """Return the copy in the encoding of the cloud's answer; None if only the cloud can answer."""
        encodings = request.encodings()
        query = parse_qs(request.target.partition("?")[2], keep_blank_values=True)
        # Other parameters change the write, as a dry run does; other patches may have further effects when applied
        # twice.
        is_plain = query.keys() <= {"timeout"} and request.content_type in (
            MERGE_PATCH,
            STRATEGIC_MERGE_PATCH,
        )
        if not is_plain or len(request.body) > IN_LOOP_LIMIT:
            return None
        copies = (store for store in self._copies() if store.codec.encoding in encodings[:1])
        return next(iter(copies), None)

    async def _written(self, store: Store, before: int, request: OfflineRequest) -> Item | None:
        """Wait for an object newer than `before` that already has all values of the patch; None if it does not arrive
        in time.

        It may have other writers' changes, too: the cloud has this state, and the patch is part of it.
        """
        try:
            async with asyncio.timeout(EVENT_WAIT):
                while True:
                    moved = store.next_update()
                    item = store.get(self._key)
                    if item is not None and item.version > before and _has(item, request):
                        return item
                    await moved
        except TimeoutError:
            return None


def _has(item: Item, request: OfflineRequest) -> bool:
    """Whether an object already has all values of the patch."""
    store = item.store
    form = store.codec.encoding, store.api_version, store.kind, item.raw
    try:
        as_it_is = updated(*form, "PATCH", MERGE_PATCH, b"{}")
        return updated(*form, "PATCH", request.content_type, request.body) == as_it_is
    except (StatusError, ValueError, LookupError):
        return False
