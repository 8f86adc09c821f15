"""Kubelet's reports on its node and pods while the cloud is gone: merged into the node's copies, and journaled."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, replace

from aiohttp import web

from addons.offline.cached_responses import CachedResponses, answer_name
from addons.offline.offline_reads import OfflineReads
from addons.offline.offline_request import OfflineRequest, response
from addons.offline.writes.journal import Journal, StatusEntry
from kube.errors import StatusError, not_acceptable, unavailable
from kube.http.client import Client, Unreachable
from kube.objects.status_update import status_document, updated
from kube.requests.request_info import parse_request
from kube.store.store import Item, Store
from kube.wire.encoded_objects import Encoded
from kube.wire.encoding import Encoding

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Held:
    """One copy of an object: in a store, or (without one) as a single answer that passed."""

    object: Encoded
    store: Store | None = None

    @property
    def form(self) -> tuple[Encoding, str, str, bytes]:
        """As `kube.objects.status_update` takes it."""
        return self.object.codec.encoding, self.object.api_version, self.object.kind, self.object.raw

    def written(self, asked: OfflineRequest) -> Held:
        """What a write makes of it; StatusError where kube-apiserver would refuse."""
        raw = updated(*self.form, asked.info.method, asked.content_type, asked.body)
        return Held(replace(self.object, raw=raw), self.store)

    def entry(self, path: str, after: Held) -> StatusEntry:
        before, now = status_document(*self.form), status_document(*after.form)
        return StatusEntry(path, self.object.kind, after.object.decode().uid, before, now)


class StatusWrites:
    """Applies status writes to every copy of an object that the node has, whatever its encoding."""

    def __init__(
        self, objects: OfflineReads, answers: CachedResponses, journal: Journal, client: Client
    ) -> None:
        """`client` asks the cloud what an object really is, when it has refused what the node made of it."""
        self._objects = objects
        self._answers = answers
        self._journal = journal
        self._client = client
        self._turn = asyncio.Lock()
        """Each write is made of what the one before it left."""

    async def take(self, asked: OfflineRequest) -> web.Response:
        """The answer to a PATCH or PUT of a status; StatusError 503 where the node does not have the object."""
        path = asked.object_path
        async with self._turn:
            found = await self._found(asked)
            if not found:
                raise unavailable(f"the cloud cannot be reached, and the node has no copy of {path}")
            made = [held.written(asked) for held in found]
            encodings = asked.encodings()
            acceptable = [each.object for each in made if each.object.codec.encoding in encodings]
            if not acceptable:
                raise not_acceptable(f"the node has {path} in another encoding only")
            for each in made:
                self._show(each, asked)
            entry = self._journal.put_status(found[0].entry(path, made[0]))
        await self._journal.written(entry)
        answer = min(acceptable, key=lambda each: encodings.index(each.codec.encoding))
        return response(answer)

    async def refused(self, entry: StatusEntry) -> None:
        """The cloud does not take a status: show again what it has."""
        for item in await self._objects.find("", parse_request("GET", entry.path)):
            codec = item.store.codec
            try:
                answer = await self._client.request("GET", entry.path, accept=codec.encoding)
                if answer.content_type == codec.encoding:
                    item.store.amend(codec.decode_single(answer.body)[2])
            except (StatusError, Unreachable, ValueError) as error:
                logger.warning("%s stays as the node had it: %s", entry.path, error)

    async def _found(self, asked: OfflineRequest) -> list[Held]:
        found = [_held(item) for item in await self._objects.find("", asked.info)]
        kept = await self._answers.get(_name(asked))
        if kept is not None:
            # A Table, say, or only metadata is no copy.
            with contextlib.suppress(ValueError, LookupError):
                held = Held(kept.single())
                status_document(*held.form)
                found.append(held)
        return found

    def _show(self, held: Held, asked: OfflineRequest) -> None:
        """From now on this is the object, for whoever watches or gets it."""
        obj = held.object
        if held.store is not None:
            held.store.amend(obj.raw)
        else:
            self._answers.keep(_name(asked), {"content-type": obj.codec.content_type}, obj.body())


def _held(item: Item) -> Held:
    store = item.store
    return Held(Encoded(store.codec, store.api_version, store.kind, item.raw), store)


def _name(asked: OfflineRequest) -> str:
    """Of the answer to a GET of the object by the same client."""
    return answer_name("", asked.object_path, asked.accept or "", asked.accept_encoding)
